"""The simulated driver as a whole: loaded or not, which GPUs are on the bus, who has it open."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import pynvml

from nodeguard.sim.driver.events import EventSet, Told
from nodeguard.sim.driver.faults import Faults
from nodeguard.sim.driver.gpu import NO_INSTANCE, SimulatedGpu
from nodeguard.sim.driver.handles import Handles
from nodeguard.sim.driver.library import Library

_FIRST_BUS = 0x1B
_BUS_STEP = 0x11
_OK = int(pynvml.NVML_SUCCESS)
_IN_USE = int(pynvml.NVML_ERROR_IN_USE)


class SimulatedDriver(Faults):
    """A driver with simulated GPUs. As a context manager it is installed below pynvml, and taken out on leaving.

    Faults of the whole driver: ``fail("nvmlInit", code)``, ``hang()`` (every call, opening too), ``missing`` functions.
    """

    def __init__(self, gpus: int | Iterable[SimulatedGpu] = 8, *, version: str = "580.65.06") -> None:
        super().__init__()
        made = _at_rest(gpus) if isinstance(gpus, int) else gpus
        self.gpus = tuple(made)
        """Every GPU of the machine, those that fell off the bus too; a test names them by their place here."""
        self.version = version
        self.missing: frozenset[str] = frozenset()
        """C functions that this driver's library does not have, as an older one."""
        self.newest_field = int(pynvml.NVML_FI_MAX)
        """Fields above it are unknown to this driver."""
        self.other_clients = 0
        """Other processes that hold the driver open."""
        self.calls: Counter[str] = Counter()
        """Calls by C function."""
        self.on_call: Callable[[str], None] = lambda _function: None
        """Told of every call, on the caller's thread."""
        self.cpu_seconds = 0.0
        """CPU time of every thread inside this library: what is the simulator's own in a process that is measured."""
        self.handles = Handles()
        self.clients = 0
        """How often pynvml has it open now."""
        self.loaded = True
        self.visible: tuple[SimulatedGpu, ...] = ()
        """What NVML lists, in its order: the bus as it was when the driver was opened."""
        self._bus = list(self.gpus)
        self._guard = threading.RLock()
        self._listeners: list[Callable[[], None]] = []
        self._held: list[Told] | None = None
        self._dropping = False
        self._before: Any = None
        self._library = Library(self)

    @classmethod
    def at(cls, slots: Sequence[str], uuids: Sequence[str]) -> Self:
        """A driver with a GPU at rest in each of these slots."""
        gpus = _at_rest(len(slots))
        for gpu, slot, uuid in zip(gpus, slots, uuids, strict=True):
            gpu.pci, gpu.uuid = slot, uuid
        return cls(gpus)

    @property
    def bus(self) -> tuple[SimulatedGpu, ...]:
        """GPUs that the bus shows now."""
        return tuple(self._bus)

    def on_bus_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever a GPU leaves or enters the bus."""
        self._listeners.append(listener)

    def install(self) -> None:
        """Put this driver below pynvml, in place of the shared library, for this process."""
        self._before = pynvml.nvmlLib
        _put_below(self._library)

    def uninstall(self) -> None:
        """Release every blocked call and put back what was below pynvml before."""
        self.release_all()
        for gpu in self.gpus:
            gpu.release_all()
        self._close_sets()
        _put_below(self._before)

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.uninstall()

    def open(self) -> int:
        """What nvmlInit does."""
        with self._guard:
            if not self.loaded:
                return int(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
            if not self.clients:
                self.visible = self.bus
            self.clients += 1
            return _OK

    def shut(self) -> int:
        """What nvmlShutdown does."""
        with self._guard:
            if not self.clients:
                return int(pynvml.NVML_ERROR_UNINITIALIZED)
            self.clients -= 1
            return _OK

    def unload(self, *, force: bool = False) -> int:
        """Unload the driver; "in use" while a client has it open, unless forced. Every handle becomes invalid."""
        with self._guard:
            if not force and (self.clients or self.other_clients):
                return _IN_USE
            self.loaded, self.clients, self.visible = False, 0, ()
            self._close_sets()
            self.handles = Handles()
            return _OK

    def load(self, version: str | None = None) -> None:
        """Load the driver, perhaps of another version. Counters that live in it start again."""
        with self._guard:
            self.version = version or self.version
            self.loaded = True
            for gpu in self._bus:
                gpu.driver_loaded()

    def reload(self, version: str | None = None, *, force: bool = True) -> int:
        """Unload and load."""
        code = self.unload(force=force)
        if code == _OK:
            self.load(version)
        return code

    def reset_gpu(self, gpu: SimulatedGpu) -> int:
        """Reset one GPU as nvidia-smi does; "in use" while a client has the driver open."""
        with self._guard:
            if self.clients or self.other_clients:
                return _IN_USE
            gpu.reset()
            return _OK

    def remove(self, gpu: SimulatedGpu, *, at_once: bool = False) -> None:
        """The GPU leaves the bus without a word. NVML lists it as lost until it is opened again, or drops it at once.

        The GPUs behind it move up one index, as NVML counts those that it finds.
        """
        with self._guard:
            self._bus.remove(gpu)
            gpu.lose()
            if at_once:
                self.visible = tuple(one for one in self.visible if one is not gpu)
        self._tell_bus()

    def insert(self, gpu: SimulatedGpu) -> None:
        """The GPU is on the bus, healed; NVML lists it when it is opened the next time."""
        with self._guard:
            gpu.heal()
            place = {one: index for index, one in enumerate(self.gpus)}
            self._bus = sorted([*self._bus, gpu], key=lambda one: place.get(one, len(place)))
        self._tell_bus()

    def emit(self, gpu: SimulatedGpu, kind: int, data: int = 0, gpu_instance: int = NO_INSTANCE,
             compute_instance: int = NO_INSTANCE) -> None:
        """Tell an event to every set that registered its type for this GPU."""
        event = Told(gpu, kind, data, gpu_instance, compute_instance)
        with self._guard:
            if self._dropping:
                return
            if self._held is not None:
                self._held.append(event)
                return
        self._deliver(event)

    def hold_events(self) -> None:
        """Events come late: they wait for :meth:`release_events`."""
        with self._guard:
            self._held = self._held or []

    def release_events(self) -> None:
        """Deliver what was held, in order."""
        with self._guard:
            held, self._held = self._held or [], None
        for event in held:
            self._deliver(event)

    def drop_events(self, *, dropping: bool = True) -> None:
        """Events are lost from now on, or no more."""
        self._dropping = dropping

    def event_sets(self) -> list[EventSet]:
        """Event sets that clients hold."""
        return self.handles.event_sets()

    def count(self, function: str) -> None:
        """Note a call."""
        with self._guard:
            self.calls[function] += 1
        self.on_call(function)

    def spent(self, seconds: float) -> None:
        """Note the CPU time of a call."""
        with self._guard:
            self.cpu_seconds += seconds

    def _deliver(self, event: Told) -> None:
        for one in self.handles.event_sets():
            one.offer(event)

    def _close_sets(self) -> None:
        for one in self.handles.event_sets():
            one.close()

    def _tell_bus(self) -> None:
        for listener in self._listeners:
            listener()


def _at_rest(number: int) -> list[SimulatedGpu]:
    return [SimulatedGpu(pci=f"0000:{_FIRST_BUS + place * _BUS_STEP:02x}:00.0", numa_node=2 * place // max(number, 1))
            for place in range(number)]


def _put_below(library: Any) -> None:
    with pynvml.libLoadLock:
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 # it holds the other library's functions
