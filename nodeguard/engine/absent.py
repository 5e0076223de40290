"""Rules judged by what is not there."""

from collections.abc import Iterable, Mapping
from typing import Any

from nodeguard.engine.compile import Compiled
from nodeguard.engine.faults import Claims, Occurrence
from nodeguard.engine.run import Run, Step
from nodeguard.engine.series import Series, SeriesTable
from nodeguard.model.device import Device, kind_of


class AbsentJudge:
    """One ``absent`` rule: a device or its sample that should be there is not, while the source is up.

    Judged at every poll of a source that carries the signal.
    """

    def __init__(self, compiled: Compiled, faults: Claims) -> None:
        self.compiled = compiled
        self._faults = faults
        self.runs: dict[Device, Run] = {}

    def poll(self, now: float, expected: Iterable[Device], table: SeriesTable) -> None:
        """One poll of the source, after its samples were taken in."""
        across = self.compiled.rule.across
        kinds = self.compiled.signal.devices if across is None else (across.kind,)
        candidates = {device for device in expected if kind_of(device) in kinds} | self.runs.keys()
        candidates |= {series.device for series in table.of_signal(self.compiled.signal.name)
                       if series.told and self.compiled.matches(dict(series.labels))}
        for device in sorted(device for device in candidates if kind_of(device) in kinds):
            self._judge(now, device, self._known(device, table))

    def _known(self, device: Device, table: SeriesTable) -> list[Series]:
        return [series for series in table.of_signal(self.compiled.signal.name)
                if series.device == device and self.compiled.matches(dict(series.labels))]

    def _judge(self, now: float, device: Device, known: list[Series]) -> None:
        gone = all(series.value is None for series in known)
        run = self.runs.get(device)
        if run is None:
            if not gone:
                return
            run = self.runs[device] = Run(self.compiled)
        step = run.feed(now, gone, not gone)
        if step is Step.OPENED:
            labels = dict(label for series in known for label in series.labels)
            evidence = Occurrence({**labels, "value": "absent"}, f"absent@{now:.3f}")
            self._faults.claim(self.compiled, device, "absent", now, evidence)
        elif step is Step.AGAIN:
            self._faults.still(self.compiled, device, now)
        elif step is Step.CLOSED:
            self._faults.release(self.compiled, device, "absent", now, "seen again")
        if run.idle:
            del self.runs[device]

    def ended(self, device: Device | None) -> None:
        """The fault on ``device`` (None: on any) was closed by evidence, by a person, or by a change of the rules."""
        for run in self.runs.values() if device is None else filter(None, (self.runs.get(device),)):
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
