"""The remediation loop's process: wires watches, leader's Lease, loop and what listens to it, and ends it in time."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from nodeguard.app.loopnews import LoopNews, nodes_by_state
from nodeguard.app.policysource import PolicySource
from nodeguard.app.pool import Pool
from nodeguard.config.remediate import RemediateSettings
from nodeguard.kube.api import Api
from nodeguard.kube.election import LeaderLease
from nodeguard.kube.informer import Informer
from nodeguard.kube.lease import NODES_PATH
from nodeguard.kube.pace import Backoff
from nodeguard.model.clock import Clock
from nodeguard.model.errors import ApiError, ApiNotFound, ApiRefused, NodeguardError
from nodeguard.remediation import budget
from nodeguard.remediation.happenings import Happening, Tell
from nodeguard.remediation.loop import Loop
from nodeguard.remediation.outlets import Outlets
from nodeguard.remediation.views import claim_classes, node_view, pod_view
from nodeguard.sinks.http import StatusServer
from nodeguard.sinks.log import Log
from nodeguard.sinks.metrics import Metrics, MetricsSnapshot
from nodeguard.sinks.remediation_metrics import RemediationMetrics

if TYPE_CHECKING:
    from nodeguard.model.sample import Labels

LEASE_NAME = "nodeguard-remediate"
"""The leader's Lease; the shipped Role lets the loop write this one only."""

_PODS_PATH = "/api/v1/pods"
_HANDS = 16
_LOOK_EVERY = 1.0
_ALIVE_WITHIN = 15.0
_SYNC_CHECK = 0.1
_STOP_WITHIN = 1.8
"""Seconds for all of the end together; what the API server does not answer by then is left."""


class Remediator:
    """One replica. ``run`` returns when ``stop`` was called, with the Lease given back."""

    def __init__(self, settings: RemediateSettings, clock: Clock, log: Log, api: Api,
                 tells: Sequence[Tell] = ()) -> None:
        """``tells`` are told every happening after the log and the outlets, on the loop's thread, and must not block.

        UserError: a setting cannot be used (policy, address).
        """
        self._settings, self._clock, self._log, self._api = settings, clock, log, api
        self._stop, self._let_go = threading.Event(), threading.Event()
        self._broken = ""
        self._news = LoopNews(log)
        self._metrics, self._meter = Metrics(), RemediationMetrics()
        self._outlets = Outlets(api, clock, settings.namespace, settings.identity, self._meter, report=self._report)
        self._tells = (self._news.tell, self._outlets.tell, *tells)
        self.policy = PolicySource(settings, log)
        self.lease = LeaderLease(api, settings.namespace, LEASE_NAME, settings.identity, clock)
        self._hands = Pool(_HANDS, self._fail)
        self.loop = Loop(api, self.lease, clock, self.policy.current, self._tell, self._hands.submit,
                         settings.namespace)
        self._nodes = Informer(api, NODES_PATH, clock, reduce=node_view)
        self._pods = Informer(api, _PODS_PATH, clock, reduce=pod_view)
        self._claims: Informer[tuple[str, ...]] | None = None
        self._no_claims = False
        """The cluster serves no ResourceClaims, or not to the loop."""
        self._synced = False
        self.status = StatusServer(settings.listen, self._metrics, self._alive, self._ready)
        self._threads: dict[str, threading.Thread] = {}

    def stop(self) -> None:
        """End :meth:`run`. From any thread or signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Work until :meth:`stop`. NodeguardError: a defect ended one of the threads, and so the process."""
        policy = self.policy.current()
        self._log.info("remediation started", identity=self._settings.identity, policy_hash=policy.hash,
                       dry_run=policy.dry_run)
        self.status.start()
        self._hands.start()
        self._start("loop", lambda: self.loop.run(self._stop), self._stop)
        self._start("nodes", lambda: self._nodes.run(self.loop.node_changed, self._stop), self._stop)
        self._start("pods", lambda: self._pods.run(self.loop.pod_changed, self._stop), self._stop)
        self._start("claims", self._follow_claims, self._stop)
        self._start("sync", self._sync, self._stop)
        self._start("lease", lambda: self.lease.run(self._let_go), self._let_go)
        for name, listen in self._outlets.runs.items():
            self._start(name, partial(listen, self._stop), self._stop)
        try:
            while not self._stop.is_set():
                self.policy.poll()
                self._publish()
                self._clock.wait(self._stop, _LOOK_EVERY)
        finally:
            self._end()
        if self._broken:
            raise NodeguardError(f"the thread {self._broken} ended by a defect; its trace is above")

    def _start(self, name: str, run: Callable[[], None], stop: threading.Event) -> None:
        def guarded() -> None:
            sound = False
            try:
                run()
                sound = True
            finally:
                if not sound and not stop.is_set():
                    self._fail(name)

        self._threads[name] = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads[name].start()

    def _fail(self, name: str) -> None:
        """End the process: what a defect left half done is finished by whoever leads next."""
        self._broken = self._broken or name
        self._stop.set()

    def _follow_claims(self) -> None:
        """Follow ResourceClaims, where the cluster serves them."""
        backoff = Backoff(0.2, 10.0)
        while not self._stop.is_set():
            try:
                served = self._api.get("/apis/resource.k8s.io").get("preferredVersion") or {}
            except ApiNotFound:
                self._no_claims = True
                return
            except ApiError as error:
                # without the right to ask, as without the kind: pods that ask for plain resources must not wait for it
                self._no_claims = isinstance(error, ApiRefused)
                self._clock.wait(self._stop, backoff.next(error.retry_after))
                continue
            path = f"/apis/{served.get('groupVersion', '')}/resourceclaims"
            self._claims = Informer(self._api, path, self._clock, reduce=claim_classes)
            self._claims.run(self.loop.claim_changed, self._stop)

    def _sync(self) -> None:
        """Let the loop begin when all is known."""
        while not self._known():
            if self._stop.wait(_SYNC_CHECK):
                return
        self.loop.synced()
        self._synced = True
        self._log.info("nodes and pods are known", nodes=len(self._nodes.items), accelerator_pods=len(self._pods.items))

    def _known(self) -> bool:
        # claims that cannot be listed must not keep the loop from pods that ask for plain resources
        claims = self._claims
        claims_known = self._no_claims or (claims is not None and (claims.synced.is_set() or bool(claims.failure)))
        return self._nodes.synced.is_set() and self._pods.synced.is_set() and claims_known

    def _tell(self, happening: Happening) -> None:
        for tell in self._tells:
            tell(happening)

    def _publish(self) -> None:
        now, slots = self._clock.boot(), budget.slots(self.lease.ledger)
        gauges: dict[tuple[str, Labels], float] = {
            ("remediation_leading", ()): float(self.lease.leading()),
            ("remediation_slots", ()): float(len(slots)),
            ("remediation_storm", ()): float(self.loop.now() < budget.storm_until(self.lease.ledger)),
            ("remediation_happenings_waiting", ()): float(self._outlets.waiting),
            ("remediation_events_waiting", ()): float(self._outlets.events.status.waiting),
            ("remediation_incidents_unwritten", ()): float(self._outlets.incidents.unwritten),
            ("remediation_decision_delay_seconds", (("quantile", "0.99"),)): _quantile(tuple(self.loop.delays), 0.99),
            ("remediation_watch_silent_seconds", (("watch", "nodes"),)): now - self._nodes.heard,
            ("remediation_watch_silent_seconds", (("watch", "pods"),)): now - self._pods.heard,
            ("policy_info", (("hash", self.policy.current().hash),)): 1.0,
            ("policy_invalid", ()): float(bool(self.policy.invalid)),
            **nodes_by_state(tuple(self._nodes.items.values()))}
        counters = {**self._news.counters(), **self._meter.counters()}
        self._metrics.publish(MetricsSnapshot(counters=counters, gauges=gauges, histograms=self._meter.histograms()))

    def _report(self, what: str, text: str) -> None:
        (self._log.info if what == "recovered" else self._log.warning)("incidents", what=what, message=text)

    def _alive(self) -> tuple[bool, str]:
        silent = self._clock.boot() - self.loop.turned
        return silent < _ALIVE_WITHIN, f"the loop turned {silent:.1f} s ago"

    def _ready(self) -> tuple[bool, str]:
        if not self._synced:
            return False, "not every Node and pod has been read yet"
        return True, "ready, leading" if self.lease.leading() else "ready, another replica leads"

    def _end(self) -> None:
        """Nothing is begun any more, then the Lease is given back, so that nobody acts beside its next holder."""
        self._stop.set()
        deadline = self._clock.boot() + _STOP_WITHIN

        def share(parts: int) -> float:
            return max(0.0, deadline - self._clock.boot()) / parts

        self._threads["loop"].join(share(3))
        self._hands.stop(share(3))
        self._let_go.set()
        self._threads["lease"].join(share(2))
        self._start("last words", self._outlets.close, self._let_go)
        self._threads["last words"].join(share(1))
        self.status.stop()
        self._log.info("remediation stopped", identity=self._settings.identity)


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0
