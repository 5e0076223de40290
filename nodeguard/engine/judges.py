"""Every tracker of one rule set: made when a series or a device appears, rebuilt when the rules change."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from nodeguard.engine.absent import AbsentJudge
from nodeguard.engine.across import AcrossJudge, Gathering
from nodeguard.engine.compile import Compiled, compile_rule
from nodeguard.engine.faults import Claims, FaultTable, Open
from nodeguard.engine.occurrences import EventTracker, group_of
from nodeguard.engine.pace import pace_trackers
from nodeguard.engine.series import Series, SeriesTable, labels_of
from nodeguard.engine.timed import StallTracker, SteadyTracker
from nodeguard.engine.trackers import CounterTracker, LevelTracker, Moment, Tracker
from nodeguard.model.device import NODE, Device, is_within, kind_of
from nodeguard.model.rule import Absent, Count, Increase, Rate, RuleSet
from nodeguard.model.sample import Event
from nodeguard.model.signals import SIGNALS

RESTORED = "restored"
"""Holder of a fault whose trackers are not there yet: the first one made for it takes over."""

CURING_SIGNALS = ("gpu_recovery_action", "gpu_row_remap_pending")
"""Signals whose way back to 0 is the evidence of a reset."""

STALLED = "source_stalled_seconds"

_ROUTES_LIMIT = 4096

EventKey = tuple[str, Device, str]


class Judges:
    """The trackers of a rule set over a table of series."""

    def __init__(self, rules: RuleSet, table: SeriesTable, faults: FaultTable, moment: Moment,  # noqa: PLR0913 # parts
                 compiled: dict[str, Compiled], here: Callable[[str], Collection[Device]]) -> None:
        """``compiled`` is filled here; the fault table reads rules from the same dictionary.

        ``here`` tells the devices of a kind.
        """
        self._table, self._faults, self._moment = table, faults, moment
        self.compiled = compiled
        compiled.clear()
        compiled.update({rule.name: compile_rule(rule, table.value, table.of_signal) for rule in rules.rules})
        self._by_signal: dict[str, list[Compiled]] = {}
        self.across: dict[str, AcrossJudge] = {}
        self.gathered: dict[str, Gathering] = {}
        self.absent: dict[str, AbsentJudge] = {}
        self.events: dict[EventKey, EventTracker] = {}
        self.quiet: dict[tuple[str, str], CounterTracker | EventTracker] = {}
        """Window trackers that hold a fault open, by rule and holder."""
        self._routes: dict[tuple[object, ...], tuple[Compiled, ...]] = {}
        for one in compiled.values():
            if one.rule.across is not None and isinstance(one.rule.test, Absent | Count):
                self.gathered[one.name] = Gathering(one, faults, here)
            elif one.rule.across is not None:
                self.across[one.name] = AcrossJudge(one, faults, moment)
            if isinstance(one.rule.test, Absent):
                self.absent[one.name] = AbsentJudge(one, self._claims(one))
            self._by_signal.setdefault(one.rule.signal, []).append(one)
        self.watched = {*CURING_SIGNALS, *(judge.compiled.rule.signal for judge in self.across.values())}
        """Signals whose samples matter beyond the series' own trackers."""
        self._timed = [name for name, row in SIGNALS.items() if row.steady or name == STALLED]
        self._names = {signal: sorted({matcher.name for one in group for matcher in one.rule.match})
                       for signal, group in self._by_signal.items()}

    def _claims(self, one: Compiled) -> Claims:
        """Who takes the claims of a rule's trackers."""
        return self.gathered.get(one.name, self._faults)

    def meet(self, series: Series, now: float) -> None:
        """Give a new series (or one under new rules) its trackers."""
        labels = dict(series.labels)
        trackers: list[Tracker] = []
        for one in self._by_signal.get(series.signal, ()):
            if not one.looks_at(series.device, labels):
                continue
            if one.rule.across is not None:
                if series.device.startswith(one.rule.across.kind + "/"):
                    self.across[one.name].join(series)
                continue
            tracker = self._tracker(one, series)
            self._adopt(tracker, now)
            trackers.append(tracker)
        series.trackers = (*trackers, *pace_trackers(self.compiled.values(), series))

    def _tracker(self, one: Compiled, series: Series) -> Tracker:
        if isinstance(one.rule.test, Increase | Rate):
            return CounterTracker(one, series, self._faults, self._moment)
        if series.signal == STALLED:
            return StallTracker(one, series, self._faults, self._moment)
        make = SteadyTracker if one.signal.steady else LevelTracker
        return make(one, series, self._faults, self._moment)

    def _adopt(self, tracker: Tracker, now: float) -> None:
        owner = self._faults.owner(tracker.compiled, tracker.device)
        fault = self._faults.open.get((tracker.compiled.name, owner))
        if fault is None or not fault.holders & {tracker.holder, RESTORED}:
            return
        fault.holders.discard(RESTORED)
        fault.holders.add(tracker.holder)
        tracker.take_over(now)
        self.note_quiet(tracker)

    def note_quiet(self, tracker: Tracker | EventTracker) -> None:
        """Remember a window tracker that holds a fault open, so that its quiet clock is watched."""
        if isinstance(tracker, CounterTracker | EventTracker) and tracker.firing and tracker.compiled.after is not None:
            self.quiet[tracker.compiled.name, tracker.holder] = tracker

    def rules_for(self, event: Event) -> tuple[Compiled, ...]:
        """The event rules that this event matches; remembered by the attributes that rules look at."""
        attributes = event.attributes
        route = (event.signal, *(attributes.get(name) for name in self._names.get(event.signal, ())))
        found = self._routes.get(route)
        if found is None:
            found = tuple(one for one in self._by_signal.get(event.signal, ()) if one.matches(attributes))
            if len(self._routes) >= _ROUTES_LIMIT:
                self._routes.clear()
            self._routes[route] = found
        return found

    def event_tracker(self, one: Compiled, event: Event) -> EventTracker | None:
        """The tracker that counts this event for a rule; None when it is not counted."""
        across = one.rule.across
        if across is not None and kind_of(event.device) != across.kind:
            return None
        group = group_of(one, event)
        return None if group is None else self._event_tracker(one, event.device, group)

    def _event_tracker(self, one: Compiled, device: Device, group: str) -> EventTracker:
        key = (one.name, device, group)
        tracker = self.events.get(key)
        if tracker is None:
            tracker = self.events[key] = EventTracker(one, device, group, self._claims(one), self._moment)
        return tracker

    def timed(self) -> Iterator[StallTracker | SteadyTracker]:
        """Trackers that time alone can move."""
        for signal in self._timed:
            if signal in self._by_signal:
                for series in self._table.of_signal(signal):
                    yield from (one for one in series.trackers if isinstance(one, StallTracker | SteadyTracker))

    def ended(self, fault: Open) -> None:
        """A fault was closed from outside: whoever held it starts anew."""
        gathered = self.gathered.get(fault.rule)
        for tracker in self._of_rule(fault.rule):
            if gathered is not None or self._faults.owner(tracker.compiled, tracker.device) == fault.device:
                tracker.ended()
                self.quiet.pop((fault.rule, tracker.holder), None)
        if gathered is not None:
            gathered.ended()
        if fault.rule in self.across:
            self.across[fault.rule].ended()
        if fault.rule in self.absent:
            self.absent[fault.rule].ended(None if gathered is not None else fault.device)

    def _of_rule(self, name: str) -> Iterator[Tracker | EventTracker]:
        for series in self._table.all.values():
            yield from (tracker for tracker in series.trackers if tracker.compiled.name == name)
        yield from (tracker for key, tracker in self.events.items() if key[0] == name)

    def leave(self, device: Device) -> None:
        """A device is gone: it has no voice in judgements over many devices."""
        for judge in self.across.values():
            judge.leave(device)

    def drop(self, series: Series) -> None:
        """A series ended, and its trackers with it."""
        for tracker in series.trackers:
            self.quiet.pop((tracker.compiled.name, tracker.holder), None)
        for judge in self.across.values():
            judge.forget(series)

    def forget(self, keep: Callable[[Device], bool]) -> None:
        """Drop trackers of events and of absence for every device but those to ``keep``."""
        for key in [key for key in self.events if not keep(key[1])]:
            self.quiet.pop((key[0], self.events.pop(key).holder), None)
            if key[0] in self.gathered:
                self.gathered[key[0]].leave(key[1])
        for name, judge in self.absent.items():
            for device in [device for device in judge.runs if not keep(device)]:
                del judge.runs[device]
                if name in self.gathered:
                    self.gathered[name].leave(device)
        for across in self.across.values():
            across.aged_out()

    def rename(self, old: Device, new: Device) -> None:
        """Event trackers move with their device."""
        for key, tracker in list(self.events.items()):
            if is_within(key[1], old):
                del self.events[key]
                self.quiet.pop((key[0], tracker.holder), None)
                tracker.device = Device(new + key[1].removeprefix(old))
                other = self.events.get((key[0], tracker.device, key[2]))
                if other is not None:
                    tracker.join(other)
                self.events[key[0], tracker.device, key[2]] = tracker
                self.note_quiet(tracker)
        for gathered in self.gathered.values():
            gathered.rename(old, new)
        for judge in self.absent.values():
            judge.runs = {Device(new + device.removeprefix(old)) if is_within(device, old) else device: run
                          for device, run in judge.runs.items()}

    def state(self) -> dict[str, Any]:
        """For the store: what is counted and what is held, by rule and judging hash."""
        return {**self.series_state(lambda _series, _tracker: True),
                "events": [[*key, tracker.state()] for key, tracker in self.events.items()],
                "across": {name: judge.state() for name, judge in self.across.items()},
                "gathered": {name: gathered.state() for name, gathered in self.gathered.items()},
                "absent": {name: judge.state() for name, judge in self.absent.items()}}

    def series_state(self, keep: Callable[[Series, Tracker], bool]) -> dict[str, Any]:
        """For the store: what the trackers to ``keep`` count on their series, with the rules' judging hashes."""
        series = [[one.compiled.name, series.signal, series.device, [list(pair) for pair in series.labels], one.state()]
                  for series in self._table.all.values() for one in series.trackers if keep(series, one)]
        return {"hashes": {name: one.rule.judging_hash for name, one in self.compiled.items()}, "series": series}

    def lifetime_state(self) -> dict[str, Any]:
        """For the store: windows over counters that the device keeps itself, which outlive a boot."""
        return self.series_state(lambda series, one: series.lifetime and isinstance(one, CounterTracker))

    def restore_series(self, state: Mapping[str, Any], shift: float = 0.0) -> set[str]:
        """Take back what :meth:`series_state` gave, for the rules that judge as before; their names.

        ``shift`` turns times of an earlier boot into this one's; what held a fault that this boot does not know
        starts anew.
        """
        same = {name for name, value in state["hashes"].items()
                if name in self.compiled and self.compiled[name].rule.judging_hash == value}
        for name, signal, device, labels, kept in state["series"]:
            series = self._table.get(signal, Device(device), labels_of({"labels": labels}))
            for tracker in series.trackers if series is not None else ():
                if tracker.compiled.name == name and name in same:
                    tracker.restore(kept, shift)
                    if isinstance(tracker, CounterTracker) and tracker.firing and not self._held(tracker):
                        tracker.ended()
                    self.note_quiet(tracker)
        return same

    def _held(self, tracker: CounterTracker) -> bool:
        owner = self._faults.owner(tracker.compiled, tracker.device)
        fault = self._faults.open.get((tracker.compiled.name, owner))
        return fault is not None and tracker.holder in fault.holders

    def close_orphans(self, names: set[str], now: float) -> None:
        """Faults of these rules that no tracker can end any more: what held them is not looked at now."""
        for fault in [fault for fault in self._faults.open.values() if fault.rule in names]:
            alive = {RESTORED, *(tracker.holder for tracker in self._of_rule(fault.rule))}
            alive |= {"across"} if fault.rule in self.across or fault.rule in self.gathered else set()
            alive |= {"absent"} if fault.rule in self.absent else set()
            fault.holders &= alive
            if not fault.holders:
                self._faults.close(fault, now, "the rule was changed: judged anew")

    def restore(self, state: Mapping[str, Any], now: float) -> None:
        """Take back what :meth:`state` gave; of rules that judge otherwise now only open faults are taken over."""
        same = self.restore_series(state)
        for name, device, group, kept in state["events"]:
            if name in same:
                counted = self._event_tracker(self.compiled[name], Device(device), group)
                counted.restore(kept)
                self.note_quiet(counted)
        for name in same & self.across.keys() & state["across"].keys():
            self.across[name].restore(state["across"][name], self._table)
        for name in same & self.absent.keys() & state["absent"].keys():
            self.absent[name].restore(state["absent"][name])
        for name in same & self.gathered.keys() & state["gathered"].keys():
            self.gathered[name].restore(state["gathered"][name])
        self.take_over({name for name in self.compiled if name not in same}, now)

    def take_over_without_series(self, now: float, names: Collection[str] | None = None) -> None:
        """Take over open faults (of ``names``, or all) whose rules judge no series that will take them over itself."""
        rules = {fault.rule for fault in self._faults.open.values()} if names is None else names
        self.take_over({name for name in rules if self._needs_no_series(name)}, now)

    def _needs_no_series(self, name: str) -> bool:
        return self.compiled[name].is_event_rule or name in self.absent or name in self.across

    def take_over(self, names: set[str], now: float) -> None:
        """Faults of these rules are open from before: let somebody judge their end."""
        for fault in [fault for fault in self._faults.open.values() if fault.rule in names]:
            one = self.compiled[fault.rule]
            if fault.rule in self.across and fault.device == NODE:
                self.across[fault.rule].take_over()
                fault.holders = {"across"}
            elif fault.rule in self.gathered and fault.rule in self.absent:
                self._faults.close(fault, now, "judged anew")
            elif fault.rule in self.absent:
                self.absent[fault.rule].take_over(fault.device)
                fault.holders = {"absent"}
            elif one.is_event_rule:
                tracker = self._event_tracker(one, fault.device, "")
                tracker.take_over(now)
                fault.holders = {"across" if fault.rule in self.gathered else tracker.holder}
                self.note_quiet(tracker)
