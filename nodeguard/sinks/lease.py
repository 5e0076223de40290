"""Renews the agent's Lease: "this agent lives", told every few seconds at the price of one small write."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from nodeguard.kube.api import MERGE_PATCH, Api, node_path
from nodeguard.kube.lease import NODES_PATH, count_of, lease_path, leases_path, node_lease, renewal, renewal_period
from nodeguard.kube.pace import spread_of
from nodeguard.model.clock import Clock
from nodeguard.model.errors import ApiError, ApiNotFound

_COUNT_EVERY = 600.0
_COUNT_AGAIN = 60.0
_TIMEOUT = 5.0
_LONGEST_ASKED = 60.0
_SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    """How the writer fares, for metrics."""

    renewals_total: int
    errors_total: int
    """Failed requests."""
    renewed_at: float | None
    """Engine time of the last renewal; None before the first."""
    last_error: str | None
    """None while all goes well."""


class LeaseWriter:
    """Keeps the Lease ``<node name>`` in nodeguard's namespace fresh.

    Its guarantees, and the periods that follow from them:

    1. **A lost node shows within seconds**: a renewal every 2 s up to 400 nodes.
    2. **The fleet costs the API server at most 200 small writes a second**: above 400 nodes the period is their
       number over 200. The number is asked for at the start and each ten minutes with a list of one Node, because
       Leases would be too few while a fleet starts; where it cannot be had, the last known one counts. Every period
       is scaled by the node's name, by ±10 %, so that agents which started together do not write together.
    3. **It outlives an outage**: after a failure it tries again at the next period, or when the server asks for it.
       A Lease that is gone is created again, owned by the Node as it is now.
    4. **The connection stays warm**: an API server closes one that idled for 90 s, and the next fault would pay for
       a TLS handshake.

    Reports ``failing`` with each new kind of failure, and ``recovered``.
    """

    def __init__(
        self, api: Api, node_name: str, namespace: str, clock: Clock, *,
        report: Callable[[str, str], None] = lambda _what, _text: None,
    ) -> None:
        self._api = api
        self._node_name = node_name
        self._namespace = namespace
        self._clock = clock
        self._report = report
        self._scale = 1.0 + _SPREAD * spread_of(node_name)
        self._period = renewal_period(1)
        self._count_at = clock.boot()
        self._failure: ApiError | None = None
        self._renewals = self._errors = 0
        self._renewed_at: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Renew until ``stop`` is set; returns at once after, or when the request under way ends."""
        while not stop.is_set():
            self._clock.wait(stop, self.turn())

    def turn(self) -> float:
        """Renew now; seconds until the next renewal. What :meth:`run` repeats; never raises."""
        asked = 0.0
        try:
            self._count()
            self._renew()
        except ApiError as error:
            asked = min(error.retry_after or 0.0, _LONGEST_ASKED)
            self._note_failure(error)
        else:
            self._note_success()
        return max(self._period * self._scale, asked)

    @property
    def status(self) -> LeaseStatus:
        """How it fares now; from any thread."""
        failure = self._failure
        return LeaseStatus(self._renewals, self._errors, self._renewed_at, str(failure) if failure else None)

    def _count(self) -> None:
        """Set the period by the number of nodes. A list that fails is no reason to fall silent."""
        now = self._clock.boot()
        if now < self._count_at:
            return
        self._count_at = now + _COUNT_EVERY * self._scale
        try:
            page = self._api.get(NODES_PATH, {"limit": "1"}, timeout=_TIMEOUT)
        except ApiError:
            self._errors += 1
            self._count_at = now + _COUNT_AGAIN
        else:
            self._period = renewal_period(count_of(page))

    def _renew(self) -> None:
        path = lease_path(self._namespace, self._node_name)
        try:
            self._api.patch(path, renewal(self._node_name, self._period, self._clock.wall()), MERGE_PATCH, _TIMEOUT)
        except ApiNotFound:
            self._create()

    def _create(self) -> None:
        node = self._api.get(node_path(self._node_name), timeout=_TIMEOUT)
        body = node_lease(node, self._namespace, self._period, self._clock.wall())
        self._api.post(leases_path(self._namespace), body, _TIMEOUT)

    def _note_failure(self, error: ApiError) -> None:
        self._errors += 1
        if type(error) is not type(self._failure):
            self._report("failing", f"the Lease {self._namespace}/{self._node_name} is not renewed: {error}")
        self._failure = error

    def _note_success(self) -> None:
        self._renewals += 1
        self._renewed_at = self._clock.boot()
        if self._failure is not None:
            self._failure = None
            self._report("recovered", f"the Lease {self._namespace}/{self._node_name} is renewed again")
