"""One leader among replicas, by a Lease; and a ledger on the same Lease that only the leader can write.

Every write names the Lease's resourceVersion, so a leader that was paused and replaced meanwhile fails at its next
one. Nobody's wall clock is compared with another machine's: a follower counts, by its own clock, how long the Lease
has not changed.
"""

import json
import threading
from collections.abc import Callable
from typing import Any

from nodeguard.kube.api import MERGE_PATCH, Api, Object
from nodeguard.kube.lease import lease_path, leases_path, micro_time
from nodeguard.model.clock import Clock
from nodeguard.model.errors import ApiConflict, ApiError, ApiNotFound, ApiUnavailable

LEDGER = "nodeguard.io/budget"
"""Annotation of the Lease."""

DURATION = 15.0
"""Seconds without a change of the Lease after which another replica takes over."""
RENEW_EVERY = 2.0
MARGIN = 5.0
"""Seconds before the end of its time at which a leader that could not renew stops acting: a request that is out then
ends before another leads."""

_TIMEOUT = 4.0
_TRIES = 4


class LeaderLease:
    """This replica's part in the election. For several threads: every write waits for the one before."""

    def __init__(self, api: Api, namespace: str, name: str, identity: str, clock: Clock) -> None:
        self._api, self._clock, self.identity = api, clock, identity
        self._path, self._collection, self._name = lease_path(namespace, name), leases_path(namespace), name
        self._namespace = namespace
        self._lock = threading.RLock()
        self._lease: Object | None = None
        self._seen: tuple[str, float] = ("", float("-inf"))
        """The resourceVersion last observed, and since when, by this replica's clock."""
        self._until = float("-inf")
        self._ledger: Object = {}
        self.failure = ""
        """Why the last renewal failed; empty: it did not."""

    def leading(self) -> bool:
        """Whether this replica may act now. A process that was paused finds out by itself, before any answer."""
        return self._clock.boot() < self._until

    @property
    def ledger(self) -> Object:
        """The ledger as last read or written. Not to be changed in place."""
        return self._ledger

    def run(self, stop: threading.Event) -> None:
        """Take part until ``stop`` is set, then let go, so that another need not wait."""
        while not stop.is_set():
            self.turn()
            self._clock.wait(stop, RENEW_EVERY)
        self.release()

    def turn(self) -> bool:
        """Renew, or try to become the leader; whether this replica leads."""
        with self._lock:
            try:
                self._turn()
                self.failure = ""
            except ApiConflict:
                # somebody wrote the Lease: another replica, or a person who holds nothing
                self._read_anew()
            except ApiError as error:
                self.failure = str(error)
        return self.leading()

    def _read_anew(self) -> None:
        try:
            self._look_again()
            self._turn()
        except ApiError as error:
            self.failure = str(error)

    def _turn(self) -> None:
        began = self._clock.boot()
        if self._lease is None or not self._is_mine():
            self._observe(began)
        if self._lease is None:
            self._create(began)
        elif self._is_mine() or self._is_vacant(began):
            self._write({}, began)

    def _observe(self, now: float) -> None:
        try:
            self._lease = self._api.get(self._path, timeout=_TIMEOUT)
        except ApiNotFound:
            self._lease = None
            return
        version = str(self._lease["metadata"]["resourceVersion"])
        if version != self._seen[0]:
            self._seen = version, now
        self._ledger = _ledger_of(self._lease)

    def _is_mine(self) -> bool:
        return self._holder() == self.identity

    def _is_vacant(self, now: float) -> bool:
        """Nobody holds it, or its holder has been silent for longer than it may, by this replica's clock."""
        return not self._holder() or now - self._seen[1] >= DURATION

    def _holder(self) -> str:
        return str(((self._lease or {}).get("spec") or {}).get("holderIdentity") or "")

    def _spec(self, holder: str) -> Object:
        wall = micro_time(self._clock.wall())
        spec: Object = {"holderIdentity": holder, "leaseDurationSeconds": int(DURATION), "renewTime": wall}
        if holder and not self._is_mine():
            before = ((self._lease or {}).get("spec") or {}).get("leaseTransitions") or 0
            spec |= {"acquireTime": wall, "leaseTransitions": int(before) + (1 if self._lease is not None else 0)}
        return spec

    def _create(self, began: float) -> None:
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace}, "spec": self._spec(self.identity)}
        self._took(self._api.post(self._collection, body, timeout=_TIMEOUT), began)

    def _write(self, annotations: Object, began: float) -> None:
        """One PATCH with the precondition. ApiConflict: somebody else wrote since."""
        version = ((self._lease or {}).get("metadata") or {}).get("resourceVersion", "")
        patch = {"metadata": {"resourceVersion": version, "annotations": annotations},
                 "spec": self._spec(self.identity)}
        self._took(self._api.patch(self._path, patch, MERGE_PATCH, timeout=_TIMEOUT), began)

    def _took(self, lease: Object, began: float) -> None:
        self._lease = lease
        self._seen = str(lease["metadata"]["resourceVersion"]), began
        self._ledger = _ledger_of(lease)
        self._until = began + DURATION - MARGIN

    def update_ledger(self, change: Callable[[Object], Object | None]) -> Object | None:
        """Change the ledger; None when ``change`` gave None, and then nothing is written.

        ``change`` may be called several times. ApiUnavailable: another replica leads, or the answer did not come; the
        ledger has been read again by then, if it could be.
        """
        with self._lock:
            for _ in range(_TRIES):
                if not self.leading():
                    raise ApiUnavailable("this replica does not lead")
                changed = change(json.loads(json.dumps(self._ledger)))
                if changed is None:
                    return None
                if self._try(changed):
                    return self._ledger
        raise ApiUnavailable("the Lease changes faster than the ledger can be written")

    def _try(self, changed: Object) -> bool:
        """Whether the ledger was written as it is given; False: somebody wrote the Lease, look again."""
        began = self._clock.boot()
        try:
            self._write({LEDGER: json.dumps(changed, separators=(",", ":"), sort_keys=True)}, began)
        except ApiConflict:
            self._look_again()
            return False
        except ApiError:
            # the write may have been done although its answer was lost
            self._look_again()
            return self._ledger == changed and self._certain(began)
        return True

    def _certain(self, began: float) -> bool:
        self._until = max(self._until, began + DURATION - MARGIN)
        return True

    def _look_again(self) -> None:
        try:
            self._observe(self._clock.boot())
        except ApiError as error:
            self._lease, self._until = None, float("-inf")
            raise ApiUnavailable(f"the Lease cannot be read: {error}") from error
        if not self._is_mine():
            self._until = float("-inf")
            raise ApiUnavailable(f"{self._holder() or 'nobody'} leads now")

    def release(self) -> None:
        """Let go of the Lease, if it is held. What fails is left to time."""
        with self._lock:
            if self._lease is None or not self._is_mine() or not self.leading():
                return
            self._until = float("-inf")
            version = self._lease["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "spec": {**self._spec(""), "holderIdentity": None}}
            try:
                self._api.patch(self._path, patch, MERGE_PATCH, timeout=_TIMEOUT)
            except ApiError as error:
                self.failure = str(error)


def _ledger_of(lease: Object) -> Object:
    text: Any = ((lease.get("metadata") or {}).get("annotations") or {}).get(LEDGER)
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
