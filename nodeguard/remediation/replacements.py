"""Waits for what replaces the pods that left: bound to nodes, and running."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from nodeguard.remediation.views import PodView


@dataclass(slots=True)
class Replacement:
    """The pods of one owner that an incident made leave, and those that come in their stead."""

    incident: str
    owner: str
    """UID of the top owner."""
    old: frozenset[str]
    """UIDs of the owner's pods before."""
    wanted: int
    bound: bool = field(default=False)
    running: bool = field(default=False)


@dataclass(frozen=True, slots=True)
class Reached:
    """An incident's replacements have all got so far."""

    incident: str
    running: bool
    """False: bound only."""


class Replacements:
    """All that are waited for. Used by the deciding thread only."""

    def __init__(self) -> None:
        self._waiting: list[Replacement] = []

    def expect(self, incident: str, owner: str, old: Iterable[PodView]) -> None:
        """Pods of this owner were made to leave. Once an incident and owner."""
        if any(one.incident == incident and one.owner == owner for one in self._waiting):
            return
        before = [pod for pod in old if not pod.finished]
        if before:
            self._waiting.append(Replacement(incident, owner, frozenset(pod.uid for pod in before), len(before)))

    def owners(self) -> frozenset[str]:
        """UIDs of the owners whose pods matter."""
        return frozenset(one.owner for one in self._waiting)

    def look(self, owner: str, pods: Iterable[PodView]) -> list[Reached]:
        """What the owner's pods, as they are now, complete."""
        alive = [pod for pod in pods if not pod.deleting and not pod.finished]
        reached: list[Reached] = []
        for one in [one for one in self._waiting if one.owner == owner]:
            bound = one.bound
            # ranks that never left count too: where only some are evicted, the others stay
            one.bound = sum(1 for pod in alive if pod.node) >= one.wanted and self._renewed(one, alive)
            one.running = one.bound and sum(1 for pod in alive if pod.node and pod.running) >= one.wanted
            if one.bound and not bound and self._all(one.incident, running=False):
                reached.append(Reached(one.incident, running=False))
            if one.running and self._all(one.incident, running=True):
                reached.append(Reached(one.incident, running=True))
                self._waiting = [other for other in self._waiting if other.incident != one.incident]
        return reached

    @staticmethod
    def _renewed(one: Replacement, alive: Iterable[PodView]) -> bool:
        return any(pod.uid not in one.old for pod in alive)

    def _all(self, incident: str, *, running: bool) -> bool:
        return all(one.running if running else one.bound for one in self._waiting if one.incident == incident)

    def forget(self, incident: str) -> None:
        """The incident has ended."""
        self._waiting = [one for one in self._waiting if one.incident != incident]
