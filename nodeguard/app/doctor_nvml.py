"""What doctor asks NVML, every call in a worker that can be left behind."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Protocol, TypeVar

from nodeguard.app.doctor_finding import Finding
from nodeguard.model.clock import Clock
from nodeguard.sources.workers import Crew
from nodeguard.vendors.nvidia.nvml_device import Gpu, Listing, Reading
from nodeguard.vendors.nvidia.nvml_errors import NvmlError
from nodeguard.vendors.nvidia.nvml_events import DOUBLE_BIT, RECOVERY_ACTION, UNAVAILABLE, XID
from nodeguard.vendors.nvidia.nvml_watch import EventWatch

T = TypeVar("T")

_ROUNDS = 5
_EVENTS = {XID: "Xid", DOUBLE_BIT: "double bit error", UNAVAILABLE: "unavailable", RECOVERY_ACTION: "recovery action"}
_MAPPED = re.compile(r"\S*/libnvidia-ml\.so\S*")


class Driver(Protocol):
    """What is asked of :class:`nodeguard.vendors.nvidia.nvml.Nvml`; the words are explained there."""

    def open(self) -> None:
        """Connect."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...

    def driver_version(self) -> str | None:
        """The driver's version."""
        ...

    def count(self) -> int:
        """How many GPUs there are."""
        ...

    def identify(self, index: int) -> Gpu | str:
        """Who is at this index."""
        ...

    def listing(self, answers: Mapping[int, Gpu | str | None]) -> Listing:
        """What the answers for every index make."""
        ...

    def fast(self, gpu: Gpu) -> Reading:
        """The fast tier."""
        ...

    def slow(self, gpu: Gpu) -> Reading:
        """The slow tier."""
        ...

    def processes(self, gpu: Gpu) -> tuple[int, ...] | None:
        """Process numbers on this GPU."""
        ...

    def watch(self, gpus: Iterable[Gpu]) -> EventWatch:
        """An event set."""
        ...


@dataclass(slots=True)
class Look:
    """What one GPU answered."""

    lost: bool = False
    unknown: tuple[str, ...] = ()
    """Signals without a known value in any round."""
    errors: dict[str, int] = field(default_factory=dict)
    events: int = 0
    """Types that it will tell, one bit each."""
    pids: tuple[int, ...] | None = None
    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    """By call: how long each round took."""


@dataclass(frozen=True, slots=True)
class Opened:
    """NVML answered."""

    version: str | None
    library: str
    """Where it was loaded from; empty: the linker's, and its place is not known."""
    listing: Listing
    hung: tuple[int, ...]
    """Indices that did not answer."""
    milliseconds: Mapping[str, float]


class Doctor:
    """Opens NVML, looks at every GPU, and closes it."""

    def __init__(self, driver: Driver, clock: Clock, patience: float, maps: Path) -> None:
        """``patience``: seconds that a call may take. ``maps``: this process's ``/proc/self/maps``."""
        self._driver, self._clock, self._patience, self._maps = driver, clock, patience, maps
        self._crew = Crew()

    def open(self) -> Opened | NvmlError | None:
        """Open and list; why that failed; None: no answer in time."""
        opened = self._ask({"open": self._open})
        answer = opened.get("open")
        if not isinstance(answer, tuple):
            return answer if isinstance(answer, NvmlError) else None
        version, count, costs = answer
        who = self._ask({f"index-{index}": partial(self._driver.identify, index) for index in range(count)})
        answers = {index: who.get(f"index-{index}") for index in range(count)}
        blind = next((one for one in answers.values() if isinstance(one, NvmlError)), None)
        if blind is not None:
            return blind
        known = {index: one if isinstance(one, Gpu | str) else None for index, one in answers.items()}
        hung = tuple(index for index, one in known.items() if one is None)
        return Opened(version, self._library(), self._driver.listing(known), hung, costs)

    def look(self, gpus: Iterable[Gpu]) -> dict[str, Look | NvmlError | None]:
        """Every GPU by UUID; None: no answer in time."""
        jobs = {one.uuid: partial(self._look, one) for one in gpus}
        answers = self._ask(jobs)
        found: dict[str, Look | NvmlError | None] = {}
        for uuid in jobs:
            answer = answers.get(uuid)
            found[uuid] = answer if isinstance(answer, Look | NvmlError) else None
        return found

    def close(self) -> None:
        """Give the driver back, if it lets."""
        if self._crew.idle("open"):
            self._ask({"open": self._driver.close})
        self._crew.dismiss()

    def _ask(self, jobs: Mapping[str, Callable[[], object]]) -> dict[str, object]:
        """What the jobs returned, or the NvmlError that they raised; those that are still out are absent."""
        for name, job in jobs.items():
            self._crew.give(name, job, self._clock.boot())
        answers: dict[str, object] = {}
        for outcome in self._crew.collect(self._patience):
            if outcome.error is not None and not isinstance(outcome.error, NvmlError):
                raise outcome.error
            answers[outcome.worker] = outcome.error or outcome.value
        return answers

    def _open(self) -> tuple[str | None, int, dict[str, float]]:
        _, opening = _timed(self._driver.open)
        version, telling = _timed(self._driver.driver_version)
        count, counting = _timed(self._driver.count)
        return version, count, {"open": opening, "driver version": telling, "count": counting}

    def _look(self, gpu: Gpu) -> Look:
        look = Look()
        known: set[str] = set()
        asked: set[str] = set()
        for _ in range(_ROUNDS):
            for name, tier in (("fast tier", self._driver.fast), ("slow tier", self._driver.slow)):
                reading, took = _timed(partial(tier, gpu))
                look.milliseconds.setdefault(name, []).append(took)
                look.lost = look.lost or reading.lost
                asked |= {one.signal for one in reading.samples}
                known |= {one.signal for one in reading.samples if one.value is not None}
                for word, count in reading.errors.items():
                    look.errors[word] = look.errors.get(word, 0) + count
            look.pids, took = _timed(partial(self._driver.processes, gpu))
            look.milliseconds.setdefault("process list", []).append(took)
        look.unknown = tuple(sorted(asked - known))
        look.events = self._events(gpu)
        return look

    def _events(self, gpu: Gpu) -> int:
        watch = self._driver.watch([gpu])
        watch.close()
        return watch.registered.get(gpu.uuid, 0)

    def _library(self) -> str:
        try:
            found = _MAPPED.search(self._maps.read_text(errors="replace"))
        except OSError:
            return ""
        return found[0] if found else ""


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    """What the call returned, and the milliseconds that it took."""
    started = time.perf_counter()
    value = call()
    return value, (time.perf_counter() - started) * 1000


def of_gpus(looks: Mapping[str, Look | NvmlError | None], proc_root: Path, deadline: float) -> Iterator[Finding]:
    """What the answers of the GPUs mean. ``deadline``: seconds after which the agent's poll goes on without one."""
    for uuid, look in looks.items():
        if look is None:
            yield Finding("GPU", "blind", f"{uuid} does not answer: its driver calls hang", "look at the kernel log "
                          "(NVRM); the GPU needs a reset, or the node a reboot")
        elif isinstance(look, NvmlError):
            yield Finding("GPU", "blind", str(look))
        elif look.lost:
            yield Finding("GPU", "blind", f"{uuid} is lost (GPU_IS_LOST)", "reboot the node; if it stays, replace it")
        elif look.errors:
            words = ", ".join(f"{word} {count} times" for word, count in sorted(look.errors.items()))
            yield Finding("GPU", "warning", f"{uuid}: calls failed: {words}", "look at the kernel log (NVRM)")
    well = {uuid: look for uuid, look in looks.items() if isinstance(look, Look) and not look.lost}
    if well:
        yield from _unsupported(well)
        yield _events_told(well)
        yield from _processes(well, proc_root)
        yield _costs(well, deadline)


def _unsupported(looks: Mapping[str, Look]) -> Iterator[Finding]:
    alike: dict[tuple[str, ...], list[str]] = {}
    for uuid, look in looks.items():
        alike.setdefault(look.unknown, []).append(uuid)
    for unknown, uuids in alike.items():
        which = f"all {len(looks)} GPUs" if len(uuids) == len(looks) else ", ".join(uuids)
        yield Finding("signals", "ok", f"{which}: not supported, so these stay unknown and open no fault: "
                      f"{', '.join(unknown)}" if unknown else f"{which}: every signal is known")


def _events_told(looks: Mapping[str, Look]) -> Finding:
    common = ~0
    for look in looks.values():
        common &= look.events
    words = [word for bit, word in _EVENTS.items() if common & bit]
    if words:
        return Finding("NVML events", "ok", f"told by every GPU: {', '.join(words)}")
    return Finding("NVML events", "ok", "not supported by every GPU; the kernel log tells the same Xids")


def _processes(looks: Mapping[str, Look], proc_root: Path) -> Iterator[Finding]:
    pids = {pid for look in looks.values() for pid in look.pids or ()}
    if pids and not any((proc_root / str(pid)).exists() for pid in pids):
        yield Finding("processes", "warning", f"none of the {len(pids)} processes that NVML lists is in {proc_root}: "
                      "the pods on a faulty GPU are known from the kubelet alone", "set hostPID: true in the pod")


def _costs(looks: Mapping[str, Look], deadline: float) -> Finding:
    parts, slowest = [], 0.0
    for call in ("fast tier", "slow tier", "process list"):
        typical = [median(look.milliseconds[call]) for look in looks.values()]
        least = min(min(look.milliseconds[call]) for look in looks.values())
        slowest = max(slowest, *typical)
        parts.append(f"{call} {least:.1f}/{median(typical):.1f}/{max(typical):.1f}")
    says = f"per GPU in ms (least/median/slowest GPU's median): {', '.join(parts)}"
    if slowest > deadline * 1000:
        return Finding("NVML cost", "warning", f"{says}; the agent counts a call as stalled after {deadline:g} s",
                       "look for other programs that keep the driver busy")
    return Finding("NVML cost", "ok", says)
