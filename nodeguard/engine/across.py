"""Rules judged over many devices: ``across``."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from nodeguard.engine.compile import Compiled
from nodeguard.engine.faults import Claims, Occurrence, renamed_holder
from nodeguard.engine.predicates import Truth
from nodeguard.engine.run import Run, Step
from nodeguard.engine.series import Series, SeriesTable
from nodeguard.engine.trackers import CounterTracker, LevelTracker, Moment
from nodeguard.engine.windows import SumWindow
from nodeguard.model.device import NODE, Device, is_within
from nodeguard.model.rule import Increase, Rate


class MemberTracker(CounterTracker):
    """A counter's window as one voice of an ``across`` rule: it opens nothing by itself."""

    def sample(self, now: float, grown: float | None) -> None:
        """See :class:`nodeguard.engine.trackers.Tracker`."""
        if grown:
            self._windows.setdefault(self._series.source, SumWindow(self._span)).add(now, grown)


class AcrossJudge:
    """One ``across`` rule: counts the devices on which its test is true, and judges the node."""

    def __init__(self, compiled: Compiled, faults: Claims, moment: Moment) -> None:
        self.compiled = compiled
        self.run = Run(compiled)
        self._faults = faults
        self._moment = moment
        self._voices: dict[Series, LevelTracker | CounterTracker] = {}
        self._away: set[Device] = set()
        """Devices that left the node and may return."""
        self.touched = False

    def join(self, series: Series) -> None:
        """A series of the rule's signal and kind appeared, or got another name."""
        if series in self._voices:
            self._voices[series].device = series.device
            return
        is_counter = isinstance(self.compiled.rule.test, Increase | Rate)
        make = MemberTracker if is_counter else LevelTracker
        self._voices[series] = make(self.compiled, series, self._faults, self._moment)

    def sample(self, series: Series, now: float, grown: float | None) -> None:
        """One of its series has a new known value."""
        self.touched = True
        self._away.discard(series.device)
        voice = self._voices.get(series)
        if isinstance(voice, MemberTracker):
            voice.sample(now, grown)

    def leave(self, device: Device) -> None:
        """A device is gone from the node: it has no voice until it is read again."""
        self._away.add(device)

    def forget(self, series: Series) -> None:
        """A series ended."""
        self._voices.pop(series, None)

    def judge(self, now: float) -> None:
        """After a batch that brought samples: one known sample of the whole."""
        self.touched = False
        truths: dict[Device, Truth] = {}
        concerned = False  # somebody is here whom the rule's companions leave out: only the others have a voice
        for series, voice in self._voices.items():
            if series.device in self._away:
                continue
            if self.compiled.holds(series.device) is False:
                concerned = True
                continue
            truth = voice.truth(now)
            truths[series.device] = truth if truth or series.device not in truths else truths[series.device]
        verdict = self._verdict(list(truths.values())) if truths or not concerned else False
        step = self.run.feed(now, verdict, None if verdict is None else not verdict)
        if step is Step.OPENED:
            affected = sorted(device for device, truth in truths.items() if truth)
            evidence = Occurrence({"devices": ", ".join(affected), "value": len(affected)}, f"across@{now:.3f}")
            self._faults.claim(self.compiled, NODE, "across", now, evidence)
        elif step is Step.AGAIN:
            self._faults.still(self.compiled, NODE, now)
        elif step is Step.CLOSED:
            self._faults.release(self.compiled, NODE, "across", now, "no longer on enough devices")

    def _verdict(self, truths: list[Truth]) -> Truth:
        across = self.compiled.rule.across
        wanted = None if across is None else across.at_least
        yes, unknown = truths.count(True), truths.count(None)
        if wanted is None:
            if not truths or False in truths:
                return False if truths else None
            return None if unknown else True
        return True if yes >= wanted else (None if yes + unknown >= wanted else False)

    def aged_out(self) -> None:
        """One of its series became unknown."""
        if all(series.value is None for series in self._voices if series.device not in self._away):
            self.run.reset()

    def ended(self) -> None:
        """The fault was closed by evidence, by a person, or by a change of the rules."""
        self.run.end()

    def take_over(self) -> None:
        """A fault of this rule is open already, from before a restart or a reload: judge its end."""
        self.run.take_over()

    def state(self) -> dict[str, Any]:
        """For the store."""
        windows = [[*series.key, voice.state()] for series, voice in self._voices.items()
                   if isinstance(voice, MemberTracker)]
        return {"run": self.run.state(), "windows": windows, "away": sorted(self._away)}

    def restore(self, state: Mapping[str, Any], table: SeriesTable) -> None:
        """Take back what :meth:`state` gave; its series must be there already."""
        self.run.restore(state["run"])
        self._away = set(map(Device, state["away"]))
        for signal, device, labels, kept in state["windows"]:
            series = table.get(signal, Device(device), tuple((str(name), str(value)) for name, value in labels))
            voice = self._voices.get(series) if series is not None else None
            if voice is not None:
                voice.restore(kept)


class Gathering:
    """Takes the claims of an ``across`` rule's trackers in place of the fault table: enough devices make one fault.

    For tests that each device's own tracker decides (``count``, ``absent``); ``here`` tells the devices of a kind.
    """

    def __init__(self, compiled: Compiled, faults: Claims, here: Callable[[str], Collection[Device]]) -> None:
        self.compiled = compiled
        self._faults = faults
        self._here = here
        self._held: dict[Device, set[str]] = {}

    def claim(self, compiled: Compiled, device: Device, holder: str, now: float, what: Occurrence) -> None:
        """See :class:`nodeguard.engine.faults.Claims`."""
        self._held.setdefault(device, set()).add(holder)
        if self._enough():
            affected = ", ".join(sorted(self._held))
            told = Occurrence({**what.evidence, "devices": affected, "value": len(self._held)}, what.key, what.at)
            self._faults.claim(compiled, NODE, "across", now, told)

    def still(self, compiled: Compiled, device: Device, now: float) -> None:  # noqa: ARG002 # one of the claimed ones
        """See :class:`nodeguard.engine.faults.Claims`."""
        self._faults.still(compiled, NODE, now)

    def release(self, compiled: Compiled, device: Device, holder: str, now: float, detail: str) -> None:
        """See :class:`nodeguard.engine.faults.Claims`."""
        holders = self._held.get(device, set())
        holders.discard(holder)
        if not holders:
            self._held.pop(device, None)
        if not self._enough():
            self._faults.release(compiled, NODE, "across", now, f"no longer on enough devices: {detail}")

    def _enough(self) -> bool:
        across = self.compiled.rule.across
        if across is not None and across.at_least is None:
            here = self._here(across.kind)
            return bool(here) and all(device in self._held for device in here)
        return len(self._held) >= (1 if across is None or across.at_least is None else across.at_least)

    def ended(self) -> None:
        """The fault was closed by evidence, by a person, or by a change of the rules."""
        self._held.clear()

    def leave(self, device: Device) -> None:
        """A device is not here any more."""
        self._held.pop(device, None)

    def rename(self, old: Device, new: Device) -> None:
        """A device's true name became known."""
        self._held = {Device(new + device.removeprefix(old)) if is_within(device, old) else device:
                      {renamed_holder(holder, old, new) for holder in holders}
                      for device, holders in self._held.items()}

    def state(self) -> dict[str, Any]:
        """For the store."""
        return {device: sorted(holders) for device, holders in self._held.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self._held = {Device(device): set(holders) for device, holders in state.items()}
