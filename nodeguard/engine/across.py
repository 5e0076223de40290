"""Rules judged over many devices or by what is not there: ``across`` and ``absent``."""

from collections.abc import Iterable, Mapping
from typing import Any

from nodeguard.engine.compile import Compiled
from nodeguard.engine.faults import FaultTable, Occurrence
from nodeguard.engine.predicates import Truth
from nodeguard.engine.run import Run, Step
from nodeguard.engine.series import Series, SeriesTable
from nodeguard.engine.trackers import CounterTracker, LevelTracker, Moment
from nodeguard.engine.windows import SumWindow
from nodeguard.model.device import NODE, Device, kind_of
from nodeguard.model.rule import Increase, Rate


class MemberTracker(CounterTracker):
    """A counter's window as one voice of an ``across`` rule: it opens nothing by itself."""

    def sample(self, now: float, grown: float | None) -> None:
        """See :class:`nodeguard.engine.trackers.Tracker`."""
        if grown:
            self._windows.setdefault(self._series.source, SumWindow(self._span)).add(now, grown)


class AcrossJudge:
    """One ``across`` rule: counts the devices on which its test is true, and judges the node."""

    def __init__(self, compiled: Compiled, faults: FaultTable, moment: Moment) -> None:
        self.compiled = compiled
        self.run = Run(compiled)
        self._faults = faults
        self._moment = moment
        self._voices: dict[Series, LevelTracker | CounterTracker] = {}
        self.touched = False

    def join(self, series: Series) -> None:
        """A series of the rule's signal and kind appeared."""
        is_counter = isinstance(self.compiled.rule.test, Increase | Rate)
        make = MemberTracker if is_counter else LevelTracker
        self._voices[series] = make(self.compiled, series, self._faults, self._moment)

    def sample(self, series: Series, now: float, grown: float | None) -> None:
        """One of its series has a new known value."""
        self.touched = True
        voice = self._voices.get(series)
        if isinstance(voice, MemberTracker):
            voice.sample(now, grown)

    def leave(self, device: Device) -> None:
        """A device is gone from the node: it has no voice any more."""
        self._voices = {series: voice for series, voice in self._voices.items() if series.device != device}

    def judge(self, now: float) -> None:
        """After a batch that brought samples: one known sample of the whole."""
        self.touched = False
        truths: dict[Device, Truth] = {}
        for series, voice in self._voices.items():
            truth = voice.truth(now)
            truths[series.device] = truth if truth or series.device not in truths else truths[series.device]
        verdict = self._verdict(list(truths.values()))
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
        if all(series.value is None for series in self._voices):
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
        return {"run": self.run.state(), "windows": windows}

    def restore(self, state: Mapping[str, Any], table: SeriesTable) -> None:
        """Take back what :meth:`state` gave; its series must be there already."""
        self.run.restore(state["run"])
        for signal, device, labels, kept in state["windows"]:
            series = table.get(signal, Device(device), tuple((str(name), str(value)) for name, value in labels))
            voice = self._voices.get(series) if series is not None else None
            if voice is not None:
                voice.restore(kept)


class AbsentJudge:
    """One ``absent`` rule: a device or its sample that should be there is not, while the source is up.

    Judged at every poll of a source that carries the signal.
    """

    def __init__(self, compiled: Compiled, faults: FaultTable) -> None:
        self.compiled = compiled
        self._faults = faults
        self.runs: dict[Device, Run] = {}

    def poll(self, now: float, expected: Iterable[Device], table: SeriesTable) -> None:
        """One poll of the source, after its samples were taken in."""
        kinds = self.compiled.signal.devices
        candidates = {device for device in expected if kind_of(device) in kinds} | self.runs.keys()
        candidates |= {series.device for series in table.of_signal(self.compiled.signal.name) if series.told}
        for device in sorted(candidates):
            self._judge(now, device, gone=self._is_gone(device, table))

    def _is_gone(self, device: Device, table: SeriesTable) -> bool:
        known = [series for series in table.of_signal(self.compiled.signal.name)
                 if series.device == device and self.compiled.matches(dict(series.labels))]
        return all(series.value is None for series in known)

    def _judge(self, now: float, device: Device, *, gone: bool) -> None:
        run = self.runs.get(device)
        if run is None:
            if not gone:
                return
            run = self.runs[device] = Run(self.compiled)
        step = run.feed(now, gone, not gone)
        if step is Step.OPENED:
            evidence = Occurrence({"value": "absent"}, f"absent@{now:.3f}")
            self._faults.claim(self.compiled, device, "absent", now, evidence)
        elif step is Step.AGAIN:
            self._faults.still(self.compiled, device, now)
        elif step is Step.CLOSED:
            self._faults.release(self.compiled, device, "absent", now, "seen again")
        if run.idle:
            del self.runs[device]

    def forget(self, device: Device) -> None:
        """The device is not expected any more."""
        self.runs.pop(device, None)

    def ended(self, device: Device) -> None:
        """The fault on ``device`` was closed by evidence, by a person, or by a change of the rules."""
        run = self.runs.get(device)
        if run is not None:
            run.end()

    def take_over(self, device: Device) -> None:
        """A fault of this rule is open already, from before a restart or a reload: judge its end."""
        self.runs.setdefault(device, Run(self.compiled)).take_over()

    def state(self) -> dict[str, Any]:
        """For the store."""
        return {device: run.state() for device, run in self.runs.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        for device, kept in state.items():
            self.runs[Device(device)] = run = Run(self.compiled)
            run.restore(kept)
