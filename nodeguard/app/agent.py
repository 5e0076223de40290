"""The agent: wires sources, engine and sinks, and turns its one loop."""

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodeguard.app import expect
from nodeguard.app.firstpods import FirstPods
from nodeguard.app.gpus import Quiet
from nodeguard.app.inbox import Inbox
from nodeguard.app.person import cleared
from nodeguard.app.remember import Remember
from nodeguard.app.rulesource import RuleSource
from nodeguard.app.sinkset import SinkSet, cluster
from nodeguard.app.sourceset import SourceSet
from nodeguard.app.taps import NO_TAPS, Taps
from nodeguard.config.settings import AgentSettings
from nodeguard.engine.engine import Engine
from nodeguard.kube.api import Api, Object, node_path
from nodeguard.model.clock import Clock
from nodeguard.model.device import NODE
from nodeguard.model.errors import ApiError, UserError
from nodeguard.model.fault import Transition
from nodeguard.model.sample import Batch, Booted, Fact, Gap, KindsHere, NodeIs, Sample
from nodeguard.sinks.http import StatusServer
from nodeguard.sinks.log import Log
from nodeguard.store import Store

_TICK = 0.5
"""Seconds after which the loop turns with nothing to do: liveness, metrics, a look at the rules."""
_AT_ONCE = 256
_SAVE_EVERY = 15.0
_METRICS_EVERY = 5.0
_FIRST_WRITE_AFTER = 10.0
_ALIVE_WITHIN = 15.0
_FIRST_READ_TIMEOUT = 3.0
_STOP_WITHIN = 1.2


class Agent:
    """One node's agent. ``run`` returns when ``stop`` was called, with the state saved."""

    def __init__(self, settings: AgentSettings, clock: Clock, log: Log, api: Api | None,
                 taps: Taps = NO_TAPS) -> None:
        """UserError: a setting cannot be used (rules, state directory, address)."""
        self._taps = taps
        self._settings, self._clock, self._log, self._api = settings, clock, log, api
        self._stop = threading.Event()
        self._inbox = Inbox(self._stop)
        self._boot_id = _boot_id(settings.proc_root)
        self._store = Store(settings.state_dir)
        self._store.lock()
        self._remember = Remember(self._store, clock, self._boot_id, self._note)
        node = self._first_look()
        self.rules = RuleSource(settings, log)
        rules, baseline = self.rules.load(_labels(node)), self.rules.baseline()
        self._sources = SourceSet(settings, clock, self._note, taps)
        restored = self._remember.restore(
            lambda: Engine(rules, node_name=settings.node_name, configured=self._sources.names,
                           soak=settings.soak, baseline=baseline), node)
        self.engine = restored.engine
        self._needs_node = restored.needs_node and api is not None
        if restored.kernel_log is not None:
            self._sources.kmsg.restore(restored.kernel_log)
        self._sinks = SinkSet(log, None if api is None else cluster(
            api, settings.node_name, settings.namespace, clock, log))
        self._sinks.restore(restored.events)
        self.status = StatusServer(settings.listen, self._sinks.metrics, self._alive, self._ready)
        self._started = self._turned = clock.boot()
        self._saved_at = self._metrics_at = float("-inf")
        self._intent = dataclasses.replace(self.engine.intent(), ready=False)
        self._dirty = self._unsaved = True
        self._clear_words = ""
        self._quiet = Quiet(self._sources.gpus, log)
        self._first_pods = FirstPods(asked=bool(self._sources.gpus.sources))
        self._carried: list[Transition] = []
        """Made outside a turn; the next one tells them."""

    def stop(self) -> None:
        """End :meth:`run`. From any thread or signal handler."""
        self._stop.set()
        self._inbox.wake()

    def run(self) -> None:
        """Turn the loop until :meth:`stop`."""
        self._log.info("agent started", node=self._settings.node_name, boot_id=self._boot_id,
                       rules=len(self.engine.rules.rules), rules_hash=self.engine.rules.hash)
        self._record_memory()
        self._carried += self._take(self._first_words())
        self.status.start()
        self._sinks.start(lambda node: self._inbox.put(lambda: self._on_node(node)))
        self._sources.start(self._inbox.put, self._source_failed)
        try:
            while not self._stop.is_set():
                self._turn()
        finally:
            self._end()

    def _record_memory(self) -> None:
        self._taps.begin(self._clock.boot(), self.engine, self._settings, self._sources.kmsg.state())

    def _first_words(self) -> Batch:
        """What the agent knows of its node and of itself before any source has spoken."""
        facts: list[Fact] = [Booted(self._boot_id, 0.0), KindsHere(self._sources.kinds),
                             expect.expected(self._settings)]
        before = [series.device for series in self.engine.series.of_signal("rdma_port_expected")]
        samples = [Sample("rules_invalid", NODE, 0), Sample("state_unwritable", NODE, 0)]
        samples += expect.samples(self._settings, before)
        return Batch(source="agent", facts=tuple(facts), samples=tuple(samples))

    def _turn(self) -> None:
        self._turned = now = self._clock.boot()
        due = self.engine.next_due()
        wait = min(_TICK if due is None else max(due - now, 0.0), _TICK, self._first_pods.left(now))
        changed, self._carried = self._carried, []
        for item in self._inbox.take(wait, _AT_ONCE):
            changed += self._take(item) if isinstance(item, Batch) else item()
        changed += self.engine.step(self._clock.boot())
        changed += self._look_at_rules()
        self._quiet.look(self._clock.wall())
        self._publish(changed)

    def _take(self, batch: Batch) -> tuple[Transition, ...]:
        now = self._clock.boot()
        self._taps.took(now, batch)
        transitions = self.engine.step(now, batch)
        self._first_pods.take(batch)
        if batch.source == "kmsg":
            self._sources.kmsg.settle(batch)
            if any(isinstance(fact, Gap) for fact in batch.facts):
                self._sources.gpus.poll_now()
        self._dirty = self._unsaved = True
        return transitions

    def _look_at_rules(self) -> tuple[Transition, ...]:
        now = self._clock.boot()
        found = self.rules.poll(now)
        if found is None:
            return ()
        self._dirty = True
        invalid = Batch(source="agent", samples=(Sample("rules_invalid", NODE, 1 if self.rules.invalid else 0),))
        transitions = () if self.rules.invalid else self.engine.reload(found, now)
        self._taps.judged_by(now, self.engine)
        return (*transitions, *self._take(invalid))

    def _publish(self, changed: list[Transition]) -> None:
        now = self._clock.boot()
        if self._dirty or changed:
            intent = self.engine.intent()
            # a source that stays silent must not hold back the first write for ever
            ready = (intent.ready or now - self._started >= _FIRST_WRITE_AFTER) and not self._needs_node
            self._sources.gpus.pods.ask(fault.device for fault in intent.faults)
            if self._first_pods.hold(intent.faults, now) and not self._stop.is_set():
                # the next turn tells all of it: to save the state now would take longer than the answer
                self._dirty, self._carried = True, changed
                return
            self._intent = intent = dataclasses.replace(intent, ready=ready)
            self._sinks.tell(changed, intent)
            self._dirty = not ready
        events = self._sinks.compose(changed, self._intent.boot_id)
        if changed or (self._unsaved and now - self._saved_at >= _SAVE_EVERY):
            self._save(now, events)
        # after the save: an Event told from a state that a crash then takes back would be told again, as another one
        self._sinks.announce(events)
        if changed or now - self._metrics_at >= _METRICS_EVERY:
            self._metrics_at = now
            self._sinks.publish_metrics(self.engine, self._intent, self.rules.invalid)

    def _save(self, now: float, events: Sequence[Object] = ()) -> None:
        self._saved_at, self._unsaved = now, False
        failure = self._remember.try_save(self.engine, self._sources.kmsg.state(), self._sinks.untold(events))
        if failure is not None:
            self._log.warning("state not saved", message=failure)
        known = self.engine.series.value("state_unwritable", NODE)
        if (failure is not None) != bool(known):
            unwritable = Sample("state_unwritable", NODE, int(failure is not None))
            self._carried += self._take(Batch(source="agent", samples=(unwritable,)))

    def _on_node(self, node: Object) -> tuple[Transition, ...]:
        if self._needs_node:
            self._needs_node = False
            self._remember.restore_annotation(self.engine, node)
            self._record_memory()
        metadata = node.get("metadata") or {}
        shift = self._clock.wall() - self._clock.boot()
        words, wrong = cleared(metadata.get("annotations") or {}, shift)
        for sentence in wrong:
            if sentence != self._clear_words:
                self._clear_words = sentence
                self._log.warning("annotation not understood", message=sentence)
        uid = str(metadata.get("uid", ""))
        facts: tuple[Fact, ...] = (NodeIs(self._settings.node_name, uid), *words)
        labels = _labels(node)
        self.rules.set_labels(labels)
        self._quiet.ask(metadata.get("annotations") or {}, labels)
        return self._take(Batch(source="agent", facts=facts))

    def _first_look(self) -> Object | None:
        if self._api is None:
            return None
        try:
            return self._api.get(node_path(self._settings.node_name), timeout=_FIRST_READ_TIMEOUT)
        except ApiError as error:
            self._note(f"the Node {self._settings.node_name} cannot be read yet: {error}")
            return None

    def _source_failed(self, name: str, error: Exception | None) -> None:
        self._log.error("source ended", source=name, message="it ended" if error is None else repr(error))

    def _note(self, text: str) -> None:
        self._log.warning("note", message=text)

    def _alive(self) -> tuple[bool, str]:
        silent = self._clock.boot() - self._turned
        return silent < _ALIVE_WITHIN, f"the loop turned {silent:.1f} s ago"

    def _ready(self) -> tuple[bool, str]:
        return self._intent.ready, "ready" if self._intent.ready else "not every source has been read yet"

    def _end(self) -> None:
        self._sources.stop(_STOP_WITHIN / 3)
        self._sinks.stop(_STOP_WITHIN / 3)
        self._taps.end(self.engine)
        self._save(self._clock.boot())
        self.status.stop()
        self._store.close()
        self._log.info("agent stopped", node=self._settings.node_name)


def _boot_id(proc_root: Path) -> str:
    path = proc_root / "sys/kernel/random/boot_id"
    try:
        return path.read_text().strip()
    except OSError as error:
        raise UserError(f"{path}: cannot read the boot ID: {error.strerror}; check --proc-root") from error


def _labels(node: Object | None) -> Mapping[str, str]:
    labels = ((node or {}).get("metadata") or {}).get("labels") or {}
    return {str(name): str(value) for name, value in labels.items()}
