"""The engine: one step takes a batch in, moves every tracker, and gives the transitions."""

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import itemgetter

from nodeguard.engine import intent as intents
from nodeguard.engine.compile import Compiled
from nodeguard.engine.cures import Cures
from nodeguard.engine.faults import FaultTable
from nodeguard.engine.inventory import Inventory
from nodeguard.engine.judges import CURING_SIGNALS, Judges
from nodeguard.engine.moment import Sources
from nodeguard.engine.occurrences import SeenElsewhere
from nodeguard.engine.series import Key, Series, SeriesTable
from nodeguard.engine.soak import Soak
from nodeguard.model.device import Device
from nodeguard.model.fault import EFFECTS, Fault, Transition, strongest
from nodeguard.model.intent import Intent
from nodeguard.model.rule import RuleSet
from nodeguard.model.sample import Batch, Event, Labels, Present, Sample, Told, Value

_SEEN_LIMIT = 256
_COUNTS_LIMIT = 4096

class Engine:
    """Judges batches by rules. Pure: time is an argument, in seconds since boot; nothing is read or written."""

    def __init__(self, rules: RuleSet, *, node_name: str = "", configured: Iterable[str] | None = None,
                 soak: float = 0.0, baseline: Mapping[str, str] | None = None) -> None:
        """Judge by ``rules`` from the first step on.

        ``configured``: the sources this agent reads (None: whichever tell something). ``soak`` in seconds;
        ``baseline``: judging hashes that count as known when no set was in force here before.
        """
        self.rules = rules
        self.series = SeriesTable()
        self.inventory = Inventory()
        self.sources = Sources(configured)
        self.soak = Soak(soak, node_name)
        self._baseline = baseline
        self._compiled: dict[str, Compiled] = {}
        self.faults = FaultTable(self._compiled.get, self.soak.soaking)
        self.faults.pci_of = self.inventory.pci
        self.faults.pods_of = self.inventory.pods_on
        self.faults.near = self.inventory.neighbours
        self.judges = self._new_judges(rules)
        self.seen = SeenElsewhere()
        self.counts: Counter[str] = Counter()
        self.event_counts: Counter[tuple[str, Device, str]] = Counter()
        self.node_uid = ""
        self.now = float("-inf")
        self._cures = Cures(self)
        self._soak_started = False

    def _new_judges(self, rules: RuleSet) -> Judges:
        return Judges(rules, self.series, self.faults, self.sources, self._compiled, self.inventory.here)

    def step(self, now: float, batch: Batch | None = None) -> tuple[Transition, ...]:
        """Advance to ``now``: timers that are due before it, then the batch, then timers due at it."""
        now = max(now, self.now)
        self.faults.step += 1
        if not self._soak_started:
            self._start_soak(now)
        self._run_timers(now, inclusive=False)
        self.now = now
        if batch is not None:
            self._take(now, batch)
        self._run_timers(now, inclusive=True)
        self.faults.refresh(now, "no longer muted or held back")
        return self._give()

    def _start_soak(self, now: float) -> None:
        self._soak_started = True
        self.soak.enforce(self.rules, now, self._baseline)

    def _give(self) -> tuple[Transition, ...]:
        given, self.faults.out = tuple(self.faults.out), []
        return given

    def reload(self, rules: RuleSet, now: float) -> tuple[Transition, ...]:
        """Put another rule set in force. Timers and windows of rules that judge as before go on."""
        now = max(now, self.now)
        self.now = now
        state = self.judges.state()
        hashes = {rule.name: rule.judging_hash for rule in rules.rules}
        names = hashes.keys()
        for fault in [fault for fault in self.faults.open.values() if fault.rule not in names]:
            self.faults.close(fault, now, "the rule was removed")
        self.rules = rules
        self.judges = self._new_judges(rules)
        for series in self.series.all.values():
            self.judges.meet(series, now)
        self.judges.restore(state, now)
        same = {name for name, value in state["hashes"].items() if value == hashes.get(name)}
        self.judges.close_orphans(names - same, now)
        self._soak_started = True
        self.soak.enforce(rules, now, self._baseline)
        self.faults.refresh(now, "the rule was changed")
        return self._give()

    def _take(self, now: float, batch: Batch) -> None:
        self.sources.told(batch.source, readings=bool(batch.samples))
        self.counts.update(batch.counts)
        self._take_part(now, batch.source, Told(batch.samples, batch.events, batch.facts), complete=batch.complete)
        for part in batch.then:
            self.faults.step += 1
            self._take_part(now, batch.source, part, complete=False)
        for tracker in self.judges.quiet.values():
            tracker.quiet.run(now, running=tracker.may_run())
        for timed in self.judges.timed():
            timed.look(now)

    def _take_part(self, now: float, source: str, told: Told, *, complete: bool) -> None:
        for fact in told.facts:
            self._cures.fact(now, source, fact)
        if told.samples or complete:
            self._take_samples(now, source, told.samples, complete=complete)
        for event in told.events:
            self.take_event(now, source, event)
        if told.samples or any(isinstance(fact, Present) for fact in told.facts):
            self._judge_absence(now, source)

    def _take_samples(self, now: float, source: str, samples: tuple[Sample, ...], *, complete: bool) -> None:
        touched: list[tuple[Series, float | None, Value | None]] = []
        table = self.series.all
        for signal, device, value, labels in samples:
            series = table.get((signal, device, labels)) or self.meet(signal, device, labels, now)
            if value is None:
                self.missed(series, source)
                continue
            if series.saturates is not None and not isinstance(value, str) and value >= series.saturates:
                self._take_saturated(now, series, value, source)
                continue
            before = series.newest
            grown = series.known(value, source)
            if series.remembers and value != before:
                series.remember(value, self.sources.boot_id)
            if series.trackers or series.signal in self.judges.watched:
                touched.append((series, grown, before))
        if complete:
            self._miss_the_rest(source, samples)
        self._judge(now, touched)

    def _judge(self, now: float, touched: list[tuple[Series, float | None, Value | None]]) -> None:
        for series, grown, _ in touched:
            for tracker in series.trackers:
                tracker.sample(now, grown)
                if grown:
                    self.judges.note_quiet(tracker)
        self._judge_across(now, touched)
        for series, _, before in touched:
            if series.signal in CURING_SIGNALS and series.value == 0 and before not in (None, 0):
                self._cures.cure("reset", series.device, now, f"{series.signal} is back to 0", same_step=False)

    def _take_saturated(self, now: float, series: Series, value: float, source: str) -> None:
        """The counter stopped at its maximum: its value is unknown, but it grew at least up to there."""
        self.counts["samples_saturated_total"] += 1
        grown = series.grown(value, source)
        self.missed(series, source)
        if grown:
            self._judge(now, [(series, grown, None)])

    def meet(self, signal: str, device: Device, labels: Labels, now: float) -> Series:
        """The series under its device's best name, made if it is new."""
        device = self.inventory.resolve(device)
        series = self.series.get(signal, device, labels)
        if series is None:
            series = Series(signal, device, labels)
            self.series.add(series)
            self.inventory.meet(device)
            self.judges.meet(series, now)
        return series

    def missed(self, series: Series, source: str) -> None:
        """A poll brought nothing known for this series."""
        if series.missed(source):
            for tracker in series.trackers:
                tracker.aged_out()
            for judge in self.judges.across.values():
                judge.aged_out()

    def _miss_the_rest(self, source: str, samples: tuple[Sample, ...]) -> None:
        told: set[Key] = {(one.signal, self.inventory.resolve(one.device), one.labels) for one in samples}
        for series in list(self.series.of_source(source, None)):
            if series.key not in told:
                self.missed(series, source)

    def _judge_across(self, now: float, touched: list[tuple[Series, float | None, Value | None]]) -> None:
        if not self.judges.across:
            return
        for series, grown, _ in touched:
            for judge in self.judges.across.values():
                if judge.compiled.rule.signal == series.signal:
                    judge.sample(series, now, grown)
        for judge in self.judges.across.values():
            if judge.touched:
                judge.judge(now)

    def _judge_absence(self, now: float, source: str) -> None:
        family = source.partition("/")[0]
        for judge in self.judges.absent.values():
            if family in judge.compiled.signal.sources:
                judge.poll(now, self.inventory.expected, self.series)

    def take_event(self, now: float, source: str, event: Event) -> None:
        """One occurrence: told to every rule that it matches, unless another source told it already."""
        event = event._replace(device=self.inventory.resolve(event.device))
        self.inventory.meet(event.device)
        matching = self.judges.rules_for(event)
        telling = self.seen.telling(now, source, event)
        if len(telling.sources) > 1:
            added = {**event.attributes, **({"text": event.text} if event.text else {})}
            self.faults.add_evidence(matching, event.device, added)
        else:
            self.seen.keep_bounded(now, _SEEN_LIMIT)
            self._count_event(event)
        pod = self.inventory.only_pod(event.device)
        # a second source may know more of the occurrence than the first: rules that only now match count it
        for compiled in [one for one in matching if one.name not in telling.rules]:
            telling.rules.append(compiled.name)
            tracker = self.judges.event_tracker(compiled, event)
            if tracker is not None:
                tracker.event(now, source, event, pod)
                self.judges.note_quiet(tracker)

    def _count_event(self, event: Event) -> None:
        key = (event.signal, event.device, str(event.attributes.get("code", "")))
        if key in self.event_counts or len(self.event_counts) < _COUNTS_LIMIT:
            self.event_counts[key] += 1

    def next_due(self) -> float | None:
        """When time alone will change something; None: not before the next batch."""
        dues = [self.soak.due()]
        dues.extend(tracker.quiet.due(tracker.compiled.after)
                    for tracker in self.judges.quiet.values() if tracker.compiled.after is not None)
        dues.extend(tracker.due() for tracker in self.judges.timed())
        return min((due for due in dues if due is not None), default=None)

    def _run_timers(self, now: float, *, inclusive: bool) -> None:
        while (due := self.next_due()) is not None and (due < now or (inclusive and due == now)):
            self.now = due = max(due, self.now)
            self._fire(due)

    def _fire(self, due: float) -> None:
        soak_due = self.soak.due()
        if soak_due is not None and soak_due <= due:
            self.soak.expire(due)
            self.faults.refresh(due, "soak ended")
        for key, tracker in sorted(self.judges.quiet.items(), key=itemgetter(0)):
            after = tracker.compiled.after
            end = None if after is None else tracker.quiet.due(after)
            if end is not None and end <= due:
                del self.judges.quiet[key]
                tracker.quieted(due)
        for timed in list(self.judges.timed()):
            end = timed.due()
            if end is not None and end <= due:
                timed.fire(due)
        self.faults.refresh(due, "no longer muted or held back")

    def intent(self) -> Intent:
        """What the Node should say now."""
        shown = self.faults.shown()
        feeding = intents.feeding(shown)
        return Intent(
            boot_id=self.sources.boot_id, rules_hash=self.rules.hash, faults=tuple(feeding),
            conditions=intents.conditions(
                [one for one in self._compiled.values() if self.sources.readable(one.signal.sources)],
                feeding, self.inventory.kinds, self._judged),
            taint=intents.taint_of(feeding), ready=self.sources.ready)

    def _judged(self, one: Compiled) -> bool:
        return self.sources.judged(one.signal.sources, events=one.is_event_rule)

    def open_faults(self) -> list[Fault]:
        """Every fault that is not muted, whatever its effect, strongest first."""
        return self.faults.shown()

    def readings(self) -> list[tuple[Sample, str]]:
        """Every newest known value, with its source."""
        return [(Sample(series.signal, series.device, series.value, series.labels), series.source)
                for series in self.series.all.values() if series.value is not None]


def strongest_effect(faults: Iterable[Fault]) -> str:
    """The strongest effect among faults; ``none`` without any."""
    return strongest(EFFECTS, *(fault.effect for fault in faults))

