"""Polls NVML: a fast and a slow tier, every call in a worker that can be left behind, opened again by itself."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from nodeguard.model.clock import Clock
from nodeguard.model.device import NODE, Device, gpu_at
from nodeguard.model.sample import Batch
from nodeguard.sources.nvml_gpus import SOURCE, Roster, Round, state
from nodeguard.sources.workers import Crew, Outcome
from nodeguard.vendors.nvidia.nvml_device import Gpu, Listing, Reading
from nodeguard.vendors.nvidia.nvml_errors import NvmlError

_DRIVER = "driver"
_INDEX = "index-"
"""Prefix of the workers that ask who is at an index: a GPU that hangs there must not hide the others."""
_FIRST_RETRY = 1.0
_LONGEST_RETRY = 30.0

Emit = Callable[[Batch], None]


@dataclass(frozen=True, slots=True)
class NvmlPace:
    """How often to ask, in seconds. Engine rules count ages in these polls."""

    fast: float = 1.0
    slow: float = 30.0
    deadline: float = 0.9
    """A call that has not answered after so long is told as stalled, and the others go on without it."""
    boot_grace: float = 300.0
    """So long after boot a driver that is not there yet is still being installed, which is no blindness."""


class Driver(Protocol):
    """What is asked of :class:`nodeguard.vendors.nvidia.nvml.Nvml`."""

    def open(self) -> None:
        """Connect."""
        ...

    def close(self) -> None:
        """Disconnect, so that a GPU can be reset and the driver unloaded."""
        ...

    def count(self) -> int:
        """How many GPUs there are."""
        ...

    def identify(self, index: int) -> Gpu | str:
        """Who is at this index; the return code's word where its handle cannot be had."""
        ...

    def listing(self, answers: Mapping[int, Gpu | str | None]) -> Listing:
        """What the answers for every index make; None: it has not come back."""
        ...

    def fast(self, gpu: Gpu) -> Reading:
        """The fast tier of one GPU."""
        ...

    def slow(self, gpu: Gpu) -> Reading:
        """The slow tier of one GPU."""
        ...


class NvmlSource:
    """The source ``nvml``. One thread calls :meth:`run`; each GPU has a worker of its own, and the driver one.

    A GPU whose call hangs keeps its worker and is given nothing more; the others are polled as before. When the driver
    as a whole stops answering, it is closed and opened again, with a back-off from 1 to 30 s.
    """

    name = SOURCE

    def __init__(self, driver: Driver, on_bus: Callable[[], Mapping[str, str | None] | None],  # noqa: PLR0913 # by name
                 clock: Clock, *,
                 pace: NvmlPace | None = None, nvlinks: int | None = None,
                 warn: Callable[[str], None] = lambda _: None) -> None:
        """``on_bus`` gives the GPUs that the PCI bus shows, with their drivers; None where it cannot be seen.

        ``nvlinks``: how many links should be up on every GPU.
        """
        self._driver, self._on_bus, self._clock = driver, on_bus, clock
        self._pace = pace or NvmlPace()
        self._warn = warn
        self._crew = Crew()
        self._roster = Roster(nvlinks)
        self._open = False
        self._quiesced = threading.Event()
        self._told_state: tuple[bool, str, bool] | None = None
        self._retry_at = self._slow_at = self._due = float("-inf")
        self._retry = _FIRST_RETRY
        self._blind_at = float("-inf")
        self._list_anew = False
        """A GPU that hung when it was asked who it is has answered: it need not wait for the slow tier."""
        self._answers: dict[int, Gpu | str | None] = {}
        self._warned: set[str] = set()
        self.opened: Callable[[tuple[Gpu, ...]], None] = lambda _gpus: None
        """Told whenever GPUs were listed anew after an opening: the event set is registered then."""
        self.closing: Callable[[], None] = lambda: None
        """Told before NVML is closed."""

    def quiesce(self, *, on: bool) -> None:
        """Close NVML and keep away from it, or go back to work. From any thread."""
        if on:
            self._quiesced.set()
        else:
            self._quiesced.clear()

    def poll_all(self) -> None:
        """Make the next round a full one: something happened that no event says all of. From any thread."""
        self._slow_at = float("-inf")

    def hangs(self, uuid: str) -> bool:
        """Whether a call on this GPU, or on the driver as a whole, is out beyond its deadline. From any thread."""
        late = self._clock.boot() - self._pace.deadline
        return self._crew.late(_DRIVER, late) or self._crew.late(uuid, late)

    @property
    def idle(self) -> bool:
        """Whether NVML is closed and no call is out."""
        return not self._open and not self._crew.out()

    def wake(self) -> None:
        """Make :meth:`run` look at its ``stop``."""
        self._crew.hurry()

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Poll until ``stop`` is set."""
        while not stop.is_set():
            self.turn(emit)
            self._clock.wait(stop, max(0.0, self._due - self._clock.boot()))
        self.end()

    def end(self) -> None:
        """End every thread that is not hung."""
        self._crew.dismiss()

    def turn(self, emit: Emit) -> None:
        """One round: open NVML if it is not, else poll what is due."""
        now = self._clock.boot()
        self._due = max(self._due + self._pace.fast, now)
        if self._quiesced.is_set():
            self._keep_away(now, emit)
        elif not self._open:
            self._try_open(now, emit)
        else:
            self._poll(now, emit)

    def _keep_away(self, now: float, emit: Emit) -> None:
        if self._open and self._crew.idle(_DRIVER):
            self._close(now)
        self._take_back(now, emit)
        self._tell(emit, up=False, reason="quiesced", deliberate=True)

    def _try_open(self, now: float, emit: Emit) -> None:
        if now >= self._retry_at and self._crew.idle(_DRIVER):
            self._crew.give(_DRIVER, self._open_and_count, now)
        self._take_back(now, emit)

    def _open_and_count(self) -> int:
        self._driver.open()
        return self._driver.count()

    def _poll(self, now: float, emit: Emit) -> None:
        slow = now >= self._slow_at
        if slow:
            self._slow_at = now + self._pace.slow
        if (slow or self._list_anew) and self._crew.idle(_DRIVER):
            self._list_anew = False
            self._crew.give(_DRIVER, self._driver.count, now)
        for one in self._roster.gpus:
            if self._crew.idle(one.uuid):
                self._crew.give(one.uuid, partial(self._read, one, slow=slow), now)
        self._take_back(now, emit)

    def _read(self, one: Gpu, *, slow: bool) -> tuple[Reading, ...]:
        fast = self._driver.fast(one)
        return (fast, self._driver.slow(one)) if slow and not fast.lost else (fast,)

    def _take_back(self, now: float, emit: Emit) -> None:
        """Collect answers up to the deadline, and say of each call that is still out that it is."""
        found = Round()
        bus = self._on_bus()
        self._answers.clear()
        for outcome in self._crew.collect(self._pace.deadline):
            self._take(outcome, found, emit, now)
        if self._answers:
            for outcome in self._crew.collect(self._pace.deadline):
                self._take(outcome, found, emit, now)
            self._take_listing(self._driver.listing(self._answers), bus, found, emit)
        late = self._clock.boot() - self._pace.deadline
        out = {worker: since for worker, since in self._crew.out().items() if since <= late}
        devices = self._devices_of(out, bus)
        silent = {devices.get(worker, NODE): since for worker, since in out.items()}
        for device, since in silent.items():
            self._roster.out(device, since, found)
        if self._open and self._roster.listed:
            if NODE not in silent and self._crew.idle(_DRIVER):
                self._roster.answered(NODE, found)
            self._roster.present(bus, found)
        if found.samples or found.events or found.facts:
            emit(found.batch())

    def _devices_of(self, workers: Iterable[str], bus: Mapping[str, str | None] | None) -> Mapping[str, Device]:
        """Which device each worker asks; by its slot one that has never said who it is, where only it can be meant."""
        known = {name: one.device for one in self._roster.gpus for name in (one.uuid, f"{_INDEX}{one.index}")}
        nameless = [worker for worker in workers if worker.startswith(_INDEX) and worker not in known]
        slots = self._roster.unlisted(bus)
        if len(nameless) == len(slots):
            known.update(zip(nameless, map(gpu_at, slots), strict=True))
        return known

    def _take(self, outcome: Outcome, found: Round, emit: Emit, now: float) -> None:
        if isinstance(outcome.error, NvmlError):
            self._blind(outcome.error, now, emit)
        elif outcome.error is not None:
            raise outcome.error
        elif outcome.worker.startswith(_INDEX) and isinstance(outcome.value, Gpu | str):
            index = int(outcome.worker.removeprefix(_INDEX))
            if index in self._answers:
                self._answers[index] = outcome.value
            else:  # it belongs to an earlier listing, and is no listing by itself
                self._list_anew = True
        elif isinstance(outcome.value, int):
            self._ask_who(outcome.value, now)
        elif isinstance(outcome.value, tuple):
            self._take_readings(outcome, found)

    def _ask_who(self, count: int, now: float) -> None:
        self._answers.update(dict.fromkeys(range(count)))
        for index in range(count):
            if self._crew.idle(f"{_INDEX}{index}"):
                self._crew.give(f"{_INDEX}{index}", partial(self._driver.identify, index), now)

    def _take_listing(self, listing: Listing, bus: Mapping[str, str | None] | None, found: Round, emit: Emit) -> None:
        fresh = not self._open
        self._open, self._retry = True, _FIRST_RETRY
        self._roster.list(listing, bus, found, whole=None not in self._answers.values())
        if fresh:
            self._slow_at = float("-inf")
            self._tell(emit, up=True)
            self.opened(listing.gpus)

    def _take_readings(self, outcome: Outcome, found: Round) -> None:
        gpu = next((one for one in self._roster.gpus if one.uuid == outcome.worker), None)
        readings = outcome.value
        if gpu is None or not isinstance(readings, tuple):
            return
        for number, reading in enumerate(readings):
            if number == 0:
                self._roster.read(gpu.device, reading, found)
            else:
                self._roster.read_slow(gpu.device, reading, found)
            for refused in reading.refused:
                self._warn_once(refused)
        if any(reading.lost for reading in readings):
            self._slow_at = float("-inf")

    def _blind(self, error: NvmlError, now: float, emit: Emit) -> None:
        """The driver as a whole does not answer: close, and try again later."""
        if now == self._blind_at:
            return
        self._blind_at = now
        if self._open:
            self._close(now)
        self._retry_at = now + self._retry
        self._retry = min(self._retry * 2, _LONGEST_RETRY)
        still_starting = now < self._pace.boot_grace
        self._tell(emit, up=False, reason=str(error), deliberate=still_starting)

    def _close(self, now: float) -> None:
        self._open = False
        self._roster.forget()
        self.closing()
        if self._crew.idle(_DRIVER):
            self._crew.give(_DRIVER, self._driver.close, now)

    def _tell(self, emit: Emit, *, up: bool, reason: str = "", deliberate: bool = False) -> None:
        told = (up, reason, deliberate)
        if told != self._told_state:
            self._told_state = told
            emit(state(up=up, reason=reason, deliberate=deliberate))

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(f"the NVIDIA driver does not answer {text}: its signals stay unknown")
