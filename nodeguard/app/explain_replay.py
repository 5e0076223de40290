"""Why a rule fired in a replay, or what kept it from firing: one row for each sample or occurrence that it looked at.

The engine judges; this only reads what it knows after each step, so what is explained is what was judged.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from nodeguard.app.explain import companion_of, matcher_of, test_of
from nodeguard.app.replay import Player, transition_row
from nodeguard.engine.compile import Compiled, compile_rule
from nodeguard.engine.engine import Engine
from nodeguard.engine.faults import Open
from nodeguard.engine.predicates import compile_match
from nodeguard.engine.series import Series
from nodeguard.engine.trackers import BOOT_GRACE_SECONDS, CounterTracker, LevelTracker
from nodeguard.model.device import NODE, Device, kind_of
from nodeguard.model.rule import Absent, Count, Left, Level, Reference, Rule
from nodeguard.model.sample import Batch, Event, SourceState, Told
from nodeguard.sources.recording.reader import Act

Row = dict[str, Any]


class Explainer:
    """Plays a recording and explains one rule on the way."""

    def __init__(self, player: Player, rule: Rule) -> None:
        self._player, self._rule = player, rule

    def rows(self, acts: Iterable[Act]) -> Iterator[Row]:
        """What the rule saw and how it judged, and its own transitions, in order."""
        for act in acts:
            made = [one for one in self._player.play((act,)) if one.fault.rule == self._rule.name]
            yield from (transition_row(one) for one in made if one.at < act.at)
            if isinstance(act.what, Batch):
                yield from self._batch(act.at, act.what)
            yield from (transition_row(one) for one in made if one.at >= act.at)

    @property
    def _engine(self) -> Engine:
        return self._player.engine

    @property
    def _compiled(self) -> Compiled:
        return self._engine.judges.compiled[self._rule.name]

    def _batch(self, at: float, batch: Batch) -> Iterator[Row]:
        for part in (Told(batch.samples, batch.events, batch.facts), *batch.then):
            for fact in part.facts:
                if isinstance(fact, SourceState) and not fact.up and self._reads(batch.source):
                    yield {"at": at, "source": batch.source,
                           "because": [f"the source {batch.source} cannot see: {fact.reason or 'no reason given'}"]}
            seen = {(self._engine.inventory.resolve(one.device), one.labels): one.value for one in part.samples
                    if one.signal == self._rule.signal}
            for (device, labels), value in sorted(seen.items(), key=itemgetter(0)):
                series = self._engine.series.get(self._rule.signal, device, labels)
                if series is not None:
                    yield self._series(at, series, known=value is not None)
            yield from (self._event(at, event) for event in part.events if event.signal == self._rule.signal)
        if isinstance(self._rule.test, Absent) and self._reads(batch.source):
            yield from self._absent(at)

    def _reads(self, source: str) -> bool:
        return source.partition("/")[0] in self._compiled.signal.sources

    def _series(self, at: float, series: Series, *, known: bool) -> Row:
        because = list(self._not_looked_at(series.device, dict(series.labels)))
        verdict = None
        if not because and not known:
            newest = "nothing" if series.value is None else series.value
            because = [f"this poll brought no known value; what is known is {newest}"]
        elif not because:
            verdict, because = self._judged(at, series)
        because += self._companions(series.device) if not because or verdict is not None else []
        return {**_head(at, series.device, dict(series.labels)), "value": series.value, "verdict": verdict,
                "because": because, **self._standing(at, series.device)}

    def _not_looked_at(self, device: Device, attributes: Mapping[str, Any]) -> Iterator[str]:
        across = self._rule.across
        kind = across.kind if across is not None else self._rule.kind
        if kind is not None and kind_of(device) != kind:
            yield f"only devices of kind {kind} are looked at"
        for one in self._rule.match:
            if not compile_match((one,))(attributes):
                name = one.name
                yield f"it does not match: {matcher_of(one)}, and {name} is {attributes.get(name, 'unknown')}"

    def _judged(self, at: float, series: Series) -> tuple[bool | None, list[str]]:
        if series.value is None:
            return None, ["the value is unknown: it opens nothing and clears nothing"]
        tracker = next((one for one in series.trackers if one.compiled.name == self._rule.name), None)
        if isinstance(tracker, CounterTracker):
            return tracker.truth(at), [_windows(tracker.state()["windows"], self._rule)]
        if isinstance(tracker, LevelTracker) and isinstance(self._rule.test, Left):
            return tracker.truth(at), self._left(series, at)
        return self._level(series)

    def _level(self, series: Series) -> tuple[bool | None, list[str]]:
        test = self._rule.test
        if not isinstance(test, Level) or series.value is None or self._compiled.compare is None:
            return None, [test_of(self._rule)]
        words = f"{series.value} {test.operator} {self._limit(test, series.device)}"
        return self._compiled.compare(series.value, series.device), [words]

    def _limit(self, test: Level, device: Device) -> str:
        operand = test.operand
        if isinstance(operand, tuple):
            return " or ".join(map(str, operand))
        if not isinstance(operand, Reference):
            return f"{operand:g}"
        value = self._engine.series.value(operand.signal, device)
        if not isinstance(value, int | float):
            return f"{operand.signal}, which is unknown"
        return f"{value * operand.times + operand.plus:g} ({operand.signal} is {value:g})"

    def _left(self, series: Series, at: float) -> list[str]:
        seen = ", ".join(sorted(series.memory)) or "nothing"
        words = [f"it is {series.value}; seen before: {seen}"]
        if self._engine.sources.in_boot_grace(at):
            words.append(f"within {BOOT_GRACE_SECONDS:g} s after the boot, what an earlier boot saw does not count yet")
        return words

    def _companions(self, device: Device) -> list[str]:
        """Each companion, where it does not hold."""
        said = []
        for one in self._rule.require:
            alone = dataclasses.replace(self._rule, require=(one,))
            table = self._engine.series
            holds = compile_rule(alone, table.value, table.of_signal).holds(device)
            if not holds:
                value = table.value(one.signal, device)
                known = "unknown" if value is None else value
                said.append(f"required: {companion_of(one)}, and {one.signal} is {known}" if holds is not None
                            else f"required: {companion_of(one)}, which is unknown")
        return said

    def _event(self, at: float, event: Event) -> Row:
        device = self._engine.inventory.resolve(event.device)
        because = list(self._not_looked_at(device, event.attributes))
        verdict = not because
        if verdict:
            because = [*self._counted(device), *self._companions(device)]
        return {**_head(at, device, dict(event.attributes)), "verdict": verdict, "because": because,
                **self._standing(at, device)}

    def _counted(self, device: Device) -> Iterator[str]:
        trackers = [one for (name, where, _), one in self._engine.judges.events.items()
                    if name == self._rule.name and where == device]
        windows = [tracker.state()["windows"] for tracker in trackers]
        yield from (_windows(one, self._rule) for one in windows if one)
        if isinstance(self._rule.test, Count) and not any(windows):
            apart = " and ".join(filter(None, (self._rule.test.distinct, *self._rule.test.same)))
            yield f"it is not counted: its {apart or 'device'} is unknown, or not of the kind that is counted"

    def _absent(self, at: float) -> Iterator[Row]:
        judge = self._engine.judges.absent.get(self._rule.name)
        for device in sorted(judge.runs) if judge is not None else ():
            yield {**_head(at, device, {}), "verdict": True, "because": ["it is gone while its source is up"],
                   **self._standing(at, device)}

    def _standing(self, at: float, device: Device) -> Row:
        """How far the rule is, and what holds its effect back."""
        owner = NODE if self._rule.across is not None else self._engine.faults.owner(self._compiled, device)
        fault = self._engine.faults.open.get((self._rule.name, owner))
        held = [*self._progress(at, device), *self._silenced(fault, owner)]
        return {"open": fault is not None, "held_back": held}

    def _progress(self, at: float, device: Device) -> Iterator[str]:
        hold = self._rule.hold
        for run in self._runs(device):
            if run["since"] is None:
                continue
            if run["firing"]:
                yield f"over for {at - run['since']:g} s"
            elif hold.seconds:
                yield f"true for {at - run['since']:g} of {hold.seconds:g} s"
            elif hold.samples > 1:
                yield f"true for {run['count']} of {hold.samples} samples"
            elif self._rule.across is not None:
                yield f"judged over all {self._rule.across.kind} devices"

    def _runs(self, device: Device) -> Iterator[Mapping[str, Any]]:
        judges, name = self._engine.judges, self._rule.name
        if name in judges.across:
            yield judges.across[name].run.state()
        if name in judges.absent and device in judges.absent[name].runs:
            yield judges.absent[name].runs[device].state()
        for series in self._engine.series.of_signal(self._rule.signal):
            if series.device == device:
                yield from (one.run.state() for one in series.trackers
                            if isinstance(one, LevelTracker) and one.compiled.name == name)

    def _silenced(self, fault: Open | None, device: Device) -> Iterator[str]:
        if self._rule.observe:
            yield f"mode is observe: the effect is event at most, not {self._rule.effect}"
        if self._engine.soak.soaking(self._rule.name):
            yield f"the rule soaks until {self._engine.soak.until[self._rule.name]:g}: the effect is condition at most"
        if fault is not None and fault.shown is None:
            yield f"muted by {', '.join(self._muting(device)) or 'a rule over many devices'}"

    def _muting(self, device: Device) -> Iterator[str]:
        for name, _ in self._engine.faults.open:
            rule = self._engine.judges.compiled[name].rule
            if rule.across is not None and rule.across.kind == kind_of(device) and self._rule.name in rule.mutes:
                yield name


def _head(at: float, device: Device, attributes: Mapping[str, Any]) -> Row:
    return {"at": at, "device": device, **({"attributes": dict(attributes)} if attributes else {})}


def _windows(windows: Mapping[str, list[list[Any]]], rule: Rule) -> str:
    """What lies in the windows of each source: moments with increments, or with what tells occurrences apart."""
    said = []
    for source, items in windows.items():
        shown = ", ".join(f"{value}@{at:g}" if value != "" else f"{at:g}" for at, value in items[-5:])
        said.append(f"{source}: {len(items)} in the window ({shown})")
    return f"{test_of(rule)}; {'; '.join(said) or 'the window is empty'}"


def text_of(row: Row) -> str:
    """A row for people."""
    if "transition" in row:
        return f"{row['at']:>12.3f}  {row['transition'].upper():<8} {row['device']}: {row['detail']}"
    if "source" in row:
        return f"{row['at']:>12.3f}  {row['because'][0]}"
    verdict = {True: "true", False: "false", None: "unknown"}[row["verdict"]]
    labels = "".join(f" {name}={value}" for name, value in row.get("attributes", {}).items())
    tail = "; ".join([*row["because"], *row["held_back"]])
    state = "open" if row["open"] else "not open"
    return f"{row['at']:>12.3f}  {row['device']}{labels}: {verdict}, {state}: {tail}"
