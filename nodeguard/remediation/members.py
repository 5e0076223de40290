"""Which pods are whose, by their top owners, and whether a gang has gone. Used by the deciding thread only."""

from collections.abc import Callable, Mapping

from nodeguard.remediation.calls import Call, Elsewhere
from nodeguard.remediation.gangs import Going
from nodeguard.remediation.owners import Owner, Owners, try_owner
from nodeguard.remediation.views import PodView
from nodeguard.remediation.world import World

_TRY_AGAIN = 1.0
_FORGOTTEN = 120.0


class Members:
    """Looks owners up before anybody needs them. ``told`` is called with each one that is known from then on."""

    def __init__(self, owners: Owners, world: World, elsewhere: Elsewhere, now: Callable[[], float],
                 told: Callable[[Owner | None], None]) -> None:
        self._owners, self._world, self._elsewhere, self._now, self._told = owners, world, elsewhere, now, told
        self._asked: dict[str, float] = {}
        """Direct controllers whose top owner is not known → when it may be asked for again."""

    def ask(self, pod: PodView) -> None:
        """Look the owner up, once at a time and not again at once."""
        uid = "" if pod.owner is None else pod.owner.uid
        if uid and self._asked.get(uid, float("-inf")) <= self._now():
            self._asked[uid] = float("inf")
            self._elsewhere(lambda: self._look_up(pod, uid))

    def _look_up(self, pod: PodView, uid: str) -> Call:
        found = try_owner(self._owners, pod)

        def take() -> None:
            if found is None:
                self._asked[uid] = self._now() + _TRY_AGAIN
            else:
                self._asked.pop(uid, None)
            self._told(found)
        return take

    def owner(self, pod: PodView) -> Owner | None:
        """Its top owner, if that is known."""
        return self._owners.known(pod)

    def of(self, uid: str) -> list[PodView]:
        """The pods of a top owner, as far as owners are known."""
        return [pod for _, pods in self._world.controllers() if self._top(pods) == uid for pod in pods.values()]

    def _top(self, pods: Mapping[str, PodView]) -> str | None:
        known = self._owners.known(next(iter(pods.values())))
        return None if known is None else known.uid

    def prune(self) -> None:
        """Forget owners without pods."""
        now = self._now()
        self._owners.keep(frozenset(uid for uid, _ in self._world.controllers()))
        self._asked = {uid: at for uid, at in self._asked.items() if at > now - _FORGOTTEN}

    def staying(self, going: Going, *, late: bool) -> str | None:
        """An old pod that holds a seat which a new one would want, or one that may be such; None: there is none.

        ``late``: a pod whose owner the API server has not told by now is none of this gang's.
        """
        for _, pods in self._world.controllers():
            sample = next(iter(pods.values()))
            if sample.namespace == going.owner.namespace and self._may_be_of(going, sample, late=late):
                staying = (pod.key for pod in pods.values() if not pod.finished and not self._stays_behind(pod, going))
                found = next(staying, None)
                if found is not None:
                    return found
        return None

    def _may_be_of(self, going: Going, pod: PodView, *, late: bool) -> bool:
        owner = self._owners.known(pod)
        if owner is None:
            self.ask(pod)
            return not late
        return owner.uid == going.owner.gang

    def _stays_behind(self, pod: PodView, going: Going) -> bool:
        """Whether it is ending on a node that takes no new pods, or went with its node, and is replaced already."""
        if not going.replaces:
            return False
        if pod.node and pod.node not in self._world.nodes:
            return True
        return pod.deleting and bool(pod.node) and self._world.record_of(pod.node) is not None
