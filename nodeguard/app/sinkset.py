"""The agent's sinks, and the threads in which they write."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from nodeguard.engine.engine import Engine
from nodeguard.kube.api import Api, Object
from nodeguard.kube.watch import NodeWatch
from nodeguard.model.clock import Clock
from nodeguard.model.fault import Transition
from nodeguard.model.intent import Intent
from nodeguard.model.sample import Labels
from nodeguard.sinks.brake import read
from nodeguard.sinks.events import EventWriter
from nodeguard.sinks.lease import LeaseWriter
from nodeguard.sinks.log import Log, transition
from nodeguard.sinks.metrics import Metrics, MetricsSnapshot
from nodeguard.sinks.node import NodeWriter


@dataclass(frozen=True, slots=True)
class Cluster:
    """What writes to the API server and watches it."""

    node: NodeWriter
    events: EventWriter
    lease: LeaseWriter
    watch: NodeWatch


def cluster(api: Api, node_name: str, namespace: str, clock: Clock, log: Log) -> Cluster:
    """The writers for one Node."""
    def report(what: str, text: str) -> None:
        (log.info if what == "recovered" else log.warning)("node writer", what=what, message=text)

    node = NodeWriter(api, node_name, clock, report=report, brake=partial(read, api, namespace))
    return Cluster(node, EventWriter(api, node_name, clock),
                   LeaseWriter(api, node_name, namespace, clock, report=report), NodeWatch(api, node_name, clock))


class SinkSet:
    """Tells every sink. First log and Node, where milliseconds count; Events once they are on disk, then metrics."""

    def __init__(self, log: Log, cluster: Cluster | None) -> None:
        self.metrics = Metrics()
        self._log, self._cluster = log, cluster
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, on_node: Callable[[Object], None]) -> None:
        """Start the writers; ``on_node`` is told every state of the Node, on a thread of its own."""
        if self._cluster is None:
            return
        node, watch = self._cluster.node, self._cluster.watch

        def observed(found: Object) -> None:
            node.observe(found)
            on_node(found)

        runs: Sequence[tuple[str, Callable[[threading.Event], None]]] = (
            ("node-writer", node.run), ("event-writer", self._cluster.events.run),
            ("lease-writer", self._cluster.lease.run),
            ("node-watch", partial(watch.run, observed)))
        for name, run in runs:
            thread = threading.Thread(target=run, args=(self._stop,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def tell(self, transitions: Sequence[Transition], intent: Intent) -> None:
        """Log what changed, and say what the Node should say. Never blocks."""
        for one in transitions:
            transition(self._log, one)
        if self._cluster is not None:
            self._cluster.node.publish(intent)

    def compose(self, transitions: Sequence[Transition], boot_id: str) -> Sequence[Object]:
        """The Events about what changed: to be kept by :meth:`untold` first, and then to be announced."""
        return () if self._cluster is None else self._cluster.events.compose(transitions, boot_id)

    def announce(self, events: Sequence[Object]) -> None:
        """Tell Events. Never blocks."""
        if self._cluster is not None:
            self._cluster.events.enqueue(events)

    def untold(self, coming: Sequence[Object] = ()) -> Object:
        """For the store: Events that wait, and those ``coming``, so that none is lost with the process."""
        return {} if self._cluster is None else self._cluster.events.state(coming)

    def restore(self, untold: Mapping[str, object]) -> None:
        """Take up Events that another process left. Before :meth:`start` only."""
        if self._cluster is not None:
            self._cluster.events.restore(untold)

    def publish_metrics(self, engine: Engine, intent: Intent, rules_invalid: str) -> None:
        """Refresh the Prometheus page."""
        self.metrics.publish(MetricsSnapshot(
            series=tuple((one.signal, one.device, one.labels, one.value) for one, _ in engine.readings()
                         if one.value is not None),
            faults=tuple(engine.open_faults()), conditions=intent.conditions,
            counters={**_counters(engine), **self._writers()}, rules_hash=engine.rules.hash,
            rules_invalid=rules_invalid))

    def _writers(self) -> dict[tuple[str, Labels], float]:
        if self._cluster is None:
            return {}
        node, events = self._cluster.node.status, self._cluster.events.status
        return {("node_writes_total", ()): node.writes_total, ("node_write_conflicts_total", ()): node.conflicts_total,
                ("node_write_errors_total", ()): node.errors_total, ("events_written_total", ()): events.written_total,
                ("events_folded_total", ()): events.folded_total, ("events_refused_total", ()): events.refused_total,
                ("lease_renewals_total", ()): self._cluster.lease.status.renewals_total,
                ("lease_errors_total", ()): self._cluster.lease.status.errors_total}

    def stop(self, seconds: float) -> None:
        """Ask the writers to end; those in the middle of a request are left to the process's end."""
        self._stop.set()
        for thread in self._threads:
            thread.join(seconds / max(len(self._threads), 1))


def _counters(engine: Engine) -> dict[tuple[str, Labels], float]:
    counts: dict[tuple[str, Labels], float] = {(name, ()): float(count) for name, count in engine.counts.items()}
    for (signal, device, code), count in engine.event_counts.items():
        labels: Labels = (("code", code), ("device", device)) if code else (("device", device),)
        counts[f"{signal}_total", labels] = float(count)
    return counts
