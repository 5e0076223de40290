"""One leader among replicas, by a Lease; and a ledger on the same Lease that only the leader can write.

Every write names the Lease's resourceVersion, so a leader that was paused and replaced meanwhile fails at its next
one. Nobody's wall clock is compared with another machine's: a follower counts, by its own clock, how long the Lease
has not changed. Two processes under one name do not take each other's term for their own: a term is known by when it
began and which one it is (``acquireTime``, ``leaseTransitions``).
"""

import json
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

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
"""Seconds before the end of its time at which a leader that could not renew stops acting: a request that it has just
sent has so long to reach the server before another leads."""

_TIMEOUT = 4.0
_TRIES = 10


class _Seen(NamedTuple):
    """The last change of the Lease that this replica knows of."""

    version: str
    since: float
    """Boot time, by this replica's clock, at which it was seen."""
    mine: bool
    """Whether this process led then."""


class LeaderLease:
    """This replica's part in the election. For several threads: every write waits for the one before."""

    def __init__(self, api: Api, namespace: str, name: str, identity: str, clock: Clock) -> None:
        self._api, self._clock, self.identity = api, clock, identity
        self._path, self._collection, self._name = lease_path(namespace, name), leases_path(namespace), name
        self._namespace = namespace
        self._lock = threading.RLock()
        self._lease: Object | None = None
        self._seen = _Seen("", float("-inf"), mine=False)
        self._term: tuple[object, object] | None = None
        """The term that this process took, or last tried to take."""
        self._until = float("-inf")
        self._ledger: Object = {}
        self._unsettled = False
        """Whether a write of the ledger may have been done that this replica does not know of."""
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
                self._turn_twice()
                self.failure = ""
            except ApiError as error:
                self.failure = str(error)
        return self.leading()

    def _turn_twice(self) -> None:
        try:
            self._turn()
        except (ApiConflict, ApiNotFound):
            # somebody wrote or deleted the Lease: another replica, or a person who holds nothing
            self._observe()
            self._turn()

    def _turn(self) -> None:
        if not self._is_mine():
            self._observe()
        began = self._clock.boot()
        if self._lease is None and self._is_vacant(began):
            self._create(began)
        elif self._is_mine() or self._is_vacant(began):
            self._write({}, began)

    def _observe(self) -> None:
        """Read the Lease. Whoever does not hold it, does not lead."""
        try:
            self._lease = self._api.get(self._path, timeout=_TIMEOUT)
        except ApiNotFound:
            self._lease, self._until = None, float("-inf")
            return
        version, mine = str(self._lease["metadata"]["resourceVersion"]), self._is_mine()
        if version != self._seen.version:
            self._seen = _Seen(version, self._clock.boot(), mine)
        if not mine:
            self._until = float("-inf")
        self._ledger, self._unsettled = _ledger_of(self._lease), False

    def _is_mine(self) -> bool:
        return self._lease is not None and self._holder() == self.identity and _term_of(self._lease) == self._term

    def _is_vacant(self, now: float) -> bool:
        """Nobody holds it, or its holder has been silent for longer than it may, by this replica's clock."""
        if now - self._seen.since >= DURATION:
            return True
        if self._lease is None:
            # a person deleted it, which its holder may learn later than this replica
            return self._seen.mine
        earlier_process = self._holder() == self.identity and self._term is None
        return not self._holder() or earlier_process

    def _holder(self) -> str:
        return str(((self._lease or {}).get("spec") or {}).get("holderIdentity") or "")

    def _claim(self) -> Object:
        """The Lease's spec as the leader writes it; it begins a new term if the Lease is not held already."""
        wall = micro_time(self._clock.wall())
        spec: Object = {"holderIdentity": self.identity, "leaseDurationSeconds": int(DURATION), "renewTime": wall}
        if self._is_mine():
            return spec
        terms = 0 if self._lease is None else int((self._lease.get("spec") or {}).get("leaseTransitions") or 0) + 1
        self._term = wall, terms
        return spec | {"acquireTime": wall, "leaseTransitions": terms}

    def _create(self, began: float) -> None:
        """A new Lease, with the ledger of one that was deleted."""
        metadata: Object = {"name": self._name, "namespace": self._namespace}
        if self._ledger:
            metadata["annotations"] = {LEDGER: _text_of(self._ledger)}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": self._claim()}
        self._took(self._api.post(self._collection, body, timeout=_TIMEOUT), began)

    def _write(self, annotations: Object, began: float) -> None:
        """One PATCH with the precondition. ApiConflict: somebody else wrote since."""
        self._took(self._patch({"annotations": annotations}, self._claim()), began)

    def _patch(self, metadata: Object, spec: Object) -> Object:
        version = ((self._lease or {}).get("metadata") or {}).get("resourceVersion", "")
        patch = {"metadata": {"resourceVersion": version, **metadata}, "spec": spec}
        return self._api.patch(self._path, patch, MERGE_PATCH, timeout=_TIMEOUT)

    def _took(self, lease: Object, began: float) -> None:
        self._lease = lease
        self._seen = _Seen(str(lease["metadata"]["resourceVersion"]), began, mine=True)
        self._ledger, self._unsettled = _ledger_of(lease), False
        self._until = began + DURATION - MARGIN

    def update_ledger(self, change: Callable[[Object], Object | None]) -> Object | None:
        """Change the ledger; None when ``change`` gave None, and then nothing is written.

        ``change`` may be called several times, with what stands there then. ApiError: another replica leads, or it
        could not be told whether the ledger was written; calling again with the same change settles that.
        """
        with self._lock:
            refusal = ApiError("")
            for _ in range(_TRIES):
                if not self.leading():
                    raise ApiUnavailable("this replica does not lead")
                if self._unsettled:
                    self._look_again()
                changed = change(json.loads(json.dumps(self._ledger)))
                if changed is None:
                    return None
                text = _text_of(changed)
                try:
                    self._write({LEDGER: text}, self._clock.boot())
                except ApiError as error:
                    refusal, self._unsettled = error, True
                    self._look_again()
                # it may have been written although the answer was lost, or was a conflict with itself when sent twice
                if _text_of(self._ledger) == text:
                    return self._ledger
        raise ApiUnavailable(f"the ledger could not be written in {_TRIES} tries: {refusal}")

    def _look_again(self) -> None:
        self._observe()
        if not self._is_mine():
            raise ApiUnavailable(f"{self._holder() or 'nobody'} leads now")

    def release(self) -> None:
        """Let go of the Lease, if it is held. What fails is left to time."""
        with self._lock:
            self._until = float("-inf")
            try:
                self._let_go()
            except ApiError as error:
                self.failure = str(error)

    def _let_go(self) -> None:
        try:
            self._give_up()
        except ApiConflict:
            self._observe()
            self._give_up()

    def _give_up(self) -> None:
        if self._is_mine():
            self._lease = self._patch({}, {"holderIdentity": None, "renewTime": micro_time(self._clock.wall())})


def _term_of(lease: Object) -> tuple[object, object]:
    spec = lease.get("spec") or {}
    return spec.get("acquireTime"), spec.get("leaseTransitions")


def _text_of(ledger: Object) -> str:
    return json.dumps(ledger, separators=(",", ":"), sort_keys=True)


def _ledger_of(lease: Object) -> Object:
    text: Any = ((lease.get("metadata") or {}).get("annotations") or {}).get(LEDGER)
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
