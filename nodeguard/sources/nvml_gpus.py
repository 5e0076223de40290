"""What one round of NVML polls says: readings of GPUs, calls that are out, who is there and who is not. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodeguard.model.device import NODE, Device, gpu_at
from nodeguard.model.sample import Batch, Event, Fact, Identified, Missed, Present, Sample, SourceState, Stalled
from nodeguard.vendors.nvidia.nvml_device import Gpu, Listing, Reading

SOURCE = "nvml"
_STALLED = "source_stalled_seconds"
ANSWERS_TO_TELL = 10
"""Answered polls that say "0 s stalled" after a stall: enough for any rule to clear by."""


@dataclass(slots=True)
class Round:
    """One poll of everything, as far as it was answered."""

    samples: list[Sample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def batch(self) -> Batch:
        """The round as the engine takes it."""
        return Batch(source=SOURCE, samples=tuple(self.samples), events=tuple(self.events), facts=tuple(self.facts),
                     counts=self.counts)


class Roster:
    """The GPUs that NVML lists, what the bus shows beside them, and which of them do not answer."""

    def __init__(self, nvlinks: int | None = None) -> None:
        """``nvlinks``: how many links should be up on every GPU; None: nobody says."""
        self._nvlinks = nvlinks
        self.gpus: tuple[Gpu, ...] = ()
        self.listed = False
        self._told: dict[str, Device] = {}
        self._stalled: set[Device] = set()
        self._answered: dict[Device, int] = {}
        self._lost: set[Device] = set()
        self._unlisted: set[str] = set()
        self._told_unlisted: set[str] = set()
        self._whole = True

    def forget(self) -> None:
        """NVML was closed: who is there is to be asked anew; who was lost, or does not answer, stays so."""
        self.listed = False
        self._told.clear()

    def list(self, listing: Listing, on_bus: Mapping[str, str | None] | None, found: Round, *, whole: bool) -> None:
        """Take a new listing; ``on_bus`` are the bus's GPUs with their drivers (None: the bus cannot be seen).

        Of a listing that is not ``whole``, because a call hangs, nobody's absence follows: who was there stays.
        """
        kept = () if whole else tuple(one for one in self.gpus if one not in listing.gpus)
        self.gpus, self.listed, self._whole = (*listing.gpus, *kept), True, whole
        for one in listing.gpus:
            self._lost.discard(one.device)
            self._name_stalled(one)
            if one.pci is not None and self._told.get(one.pci) != one.device:
                self._told[one.pci] = one.device
                found.facts.append(Identified(one.pci, one.device))
        for one in listing.lost:
            self._lose(one.device, "nvml", found)
        if whole:
            found.samples.append(Sample("gpu_count", NODE, len(listing.gpus)))
            self._compare(on_bus, found)

    def _name_stalled(self, one: Gpu) -> None:
        """A GPU that hung while it was asked who it is has said it."""
        if one.pci is not None and gpu_at(one.pci) in self._stalled:
            self._stalled.discard(gpu_at(one.pci))
            self._stalled.add(one.device)

    def _compare(self, on_bus: Mapping[str, str | None] | None, found: Round) -> None:
        """A GPU that the bus shows and NVML does not, twice in a row, was lost before anybody looked."""
        unlisted = set(self.unlisted(on_bus))
        for pci in sorted(unlisted & self._unlisted - self._told_unlisted):
            self._lose(self._told.get(pci, gpu_at(pci)), "not_in_driver", found)
        self._told_unlisted = self._told_unlisted & unlisted | unlisted & self._unlisted
        self._unlisted = unlisted

    def unlisted(self, on_bus: Mapping[str, str | None] | None) -> tuple[str, ...]:
        """Slots of GPUs that the driver holds, as the bus shows them, and that NVML has not listed."""
        listed = {one.pci for one in self.gpus}
        ours = {pci for pci, driver in (on_bus or {}).items() if driver in (None, "nvidia")}
        return tuple(sorted(ours - listed))

    def _lose(self, device: Device, cause: str, found: Round) -> None:
        if device not in self._lost:
            self._lost.add(device)
            found.events.append(Event("gpu_lost", device, {"cause": cause}))

    def present(self, on_bus: Mapping[str, str | None] | None, found: Round) -> None:
        """Who is there now: what NVML listed, less what has left the bus since.

        Nothing while a GPU that has not come to say who it is may be one that an earlier agent knew.
        """
        if not self._whole and (on_bus is None or self.unlisted(on_bus)):
            return
        here = [one for one in self.gpus if on_bus is None or one.pci is None or one.pci in on_bus]
        found.facts.append(Present("gpu", frozenset(one.device for one in here)))

    def read(self, device: Device, reading: Reading, found: Round) -> None:
        """A GPU answered. The first answer is told as the end of a stall, which an earlier agent may have told of."""
        if device in self._stalled or device not in self._answered:
            self._stalled.discard(device)
            self._answered[device] = ANSWERS_TO_TELL
            found.facts.append(Stalled(device, None))
        elif self._answered[device]:
            self._answered[device] -= 1
            found.samples.append(Sample(_STALLED, device, 0, (("source", SOURCE),)))
        if reading.lost:
            found.facts.append(Missed(frozenset({device})))
            if reading.events:
                self._lose(device, "nvml", found)
            return
        self._lost.discard(device)
        found.samples.extend(reading.samples)
        found.events.extend(reading.events)
        for word, count in reading.errors.items():
            found.counts["nvml_call_errors_total"] = found.counts.get("nvml_call_errors_total", 0) + count
            found.counts[f"nvml_call_errors_{word.lower()}_total"] = count

    def read_slow(self, device: Device, reading: Reading, found: Round) -> None:
        """The slow tier of a GPU that answered."""
        if self._nvlinks is not None and any(one.signal == "gpu_nvlinks_active" for one in reading.samples):
            found.samples.append(Sample("gpu_nvlinks_expected", device, self._nvlinks))
        found.samples.extend(reading.samples)
        found.events.extend(reading.events)

    def out(self, device: Device, since: float, found: Round) -> None:
        """A call on ``device`` has not answered in time."""
        if device not in self._stalled:
            self._stalled.add(device)
            found.facts.append(Stalled(device, since))
        found.facts.append(Missed(frozenset({device})))

    def answered(self, device: Device, found: Round) -> None:
        """A call that is no reading of a GPU answered."""
        self.read(device, Reading(), found)


def state(*, up: bool, reason: str = "", deliberate: bool = False) -> Batch:
    """Whether NVML can be seen through. Blind: what was known ages out at once, as after missed polls."""
    facts: Iterable[Fact] = (SourceState(up=up, caught_up=up, reason=reason, deliberate=deliberate),)
    return Batch(source=SOURCE, facts=tuple(facts) if up else (*facts, Missed(), Missed(), Missed()))
