"""How often a pod is asked to leave: each at its own pace, and ever more slowly what comes back to the same node."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from nodeguard.kube.pace import Backoff
from nodeguard.remediation.views import PodView

_SENT_AGAIN = 30.0
"""Seconds after which a pod whose eviction was answered well, and that is not ending, is asked again."""

_Place = tuple[str, str]
"""Node and the pod's direct controller."""


def _backoff() -> Backoff:
    return Backoff(0.2, 10.0)


@dataclass(slots=True)
class _Try:
    """Requests that one pod leave."""

    next: float
    backoff: Backoff = field(default_factory=_backoff)
    blocked_since: float | None = None
    answered: bool = False
    """Whether the request was answered well, whatever came of it."""


@dataclass(slots=True)
class _Returns:
    """Pods of one controller that are made anew on the node that they were to leave: they tolerate its taint."""

    since: float
    next: float
    backoff: Backoff


class Tries:
    """Paces. Times are Unix seconds. For several threads."""

    def __init__(self) -> None:
        self._tries: dict[str, _Try] = {}
        self._returns: dict[_Place, _Returns] = {}
        self._lock = threading.Lock()

    def due(self, pods: Iterable[PodView], now: float) -> tuple[PodView, ...]:
        """Those pods that may be asked to leave (again) now."""
        with self._lock:
            return tuple(pod for pod in pods if (self._next(pod) or now) <= now)

    def next_due(self, pods: Iterable[PodView]) -> float | None:
        """When the first of these pods may be asked again."""
        with self._lock:
            return min((due for pod in pods if (due := self._next(pod)) is not None), default=None)

    def blocked_since(self, pods: Iterable[PodView]) -> float | None:
        """Since when a disruption budget has refused to let one of these pods go."""
        with self._lock:
            found = (self._tries[pod.uid].blocked_since for pod in pods if pod.uid in self._tries)
            return min((at for at in found if at is not None), default=None)

    def sent(self, pods: Iterable[PodView], now: float) -> None:
        """They were asked, and will leave."""
        with self._lock:
            for pod in pods:
                self._tries[pod.uid] = _Try(now + _SENT_AGAIN, answered=True)
                returns = self._returns_of(pod)
                if returns is not None:
                    returns.next = now + returns.backoff.next()
                elif pod.owner is not None:
                    self._returns.setdefault(_place(pod), _Returns(now, now, Backoff(1.0, 300.0)))

    def answered(self, uid: str) -> bool:
        """Whether a request that this pod leave was answered well."""
        with self._lock:
            return uid in self._tries and self._tries[uid].answered

    def later(self, pods: Iterable[PodView], now: float, *, blocked: bool = False, asked: float | None = None) -> None:
        """Ask again after a while that grows, and not sooner than ``asked`` seconds from now, up to a minute."""
        with self._lock:
            for pod in pods:
                found = self._tries.setdefault(pod.uid, _Try(now))
                found.next = now + found.backoff.next(asked)
                if not blocked:
                    found.blocked_since = None
                elif found.blocked_since is None:
                    found.blocked_since = now

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        with self._lock:
            self._tries.pop(uid, None)

    def keep(self, uids: Iterable[str], nodes: Iterable[str]) -> None:
        """Forget all other pods, and what came back to other nodes."""
        pods, places = frozenset(uids), frozenset(nodes)
        with self._lock:
            self._tries = {uid: one for uid, one in self._tries.items() if uid in pods}
            self._returns = {place: one for place, one in self._returns.items() if place[0] in places}

    def _next(self, pod: PodView) -> float | None:
        found, returns = self._tries.get(pod.uid), self._returns_of(pod)
        return max((one.next for one in (found, returns) if one is not None), default=None)

    def _returns_of(self, pod: PodView) -> _Returns | None:
        """Its kind's returns, if this pod was made after the first one had left; stamps are whole seconds."""
        found = self._returns.get(_place(pod)) if pod.owner is not None else None
        return found if found is not None and pod.created >= int(found.since) else None


def _place(pod: PodView) -> _Place:
    return pod.node, pod.owner.uid if pod.owner is not None else ""
