"""The restarts of gangs that are under way, and when each may be resumed. Used by the deciding thread only."""

from collections.abc import Callable, Iterable, Mapping

from nodeguard.kube.api import Api
from nodeguard.model.errors import ApiError
from nodeguard.remediation import gangs
from nodeguard.remediation.gangs import Going
from nodeguard.remediation.happenings import Happening, Tell, What
from nodeguard.remediation.mover import Mover
from nodeguard.remediation.owners import Owners, try_owner
from nodeguard.remediation.record import Record, Restarted
from nodeguard.remediation.replacements import Replacements
from nodeguard.remediation.views import PodView
from nodeguard.remediation.world import World

Call = Callable[[], None]
Elsewhere = Callable[[Callable[[], Call]], None]

_TRY_AGAIN = 1.0
_DAY = 86_400.0


class Restarts:
    """Keeps every restart until its owner is resumed, whoever began it."""

    def __init__(self, api: Api, owners: Owners, mover: Mover, world: World, tell: Tell,  # noqa: PLR0913
                 elsewhere: Elsewhere, touch: Callable[..., None], now: Callable[[], float]) -> None:
        self._api, self._owners, self._mover, self._world = api, owners, mover, world
        self._tell, self._elsewhere, self._touch, self._now = tell, elsewhere, touch, now
        self._going: dict[str, Going] = {}
        self._noted: set[str] = set()
        """Identities of restarts that stand on a Node's record, or need not."""
        self._resuming: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._asked: set[str] = set()
        """Direct controllers whose top owner is being looked up."""
        self._history: dict[str, dict[str, float]] = {}
        self.replacements = Replacements()
        self._changed = True

    @property
    def going(self) -> Mapping[str, Going]:
        """By the owner's UID."""
        return self._going

    def history(self) -> Mapping[str, tuple[float, ...]]:
        """Owner's UID → when it was restarted within a day."""
        since = self._now() - _DAY
        return {uid: tuple(at for at in by_id.values() if at > since) for uid, by_id in self._history.items()}

    def remember(self, restarted: Iterable[Restarted]) -> None:
        """These restarts are known of, from a Node's record or from a past incident."""
        for one in restarted:
            self._history.setdefault(one.owner, {})[one.id] = one.at

    def took(self, going: Going) -> None:
        """A restart was begun or joined."""
        self._going[going.owner.uid] = going
        self._changed = True

    def missing(self, name: str, record: Record | None) -> tuple[Restarted, ...]:
        """Restarts for this node that its record does not tell of yet; they are not resumed before."""
        known = {one.id for one in record.restarts} if record is not None else set()
        return tuple(_restarted(going) for going in self._going.values()
                     if name in going.restart.nodes and going.restart.id not in known)

    def evicted(self, incident: str, pods: Iterable[PodView]) -> None:
        """These pods were evicted one by one: what replaces them is waited for."""
        for uid in {owner.uid for pod in pods if (owner := self._owners.known(pod)) is not None and owner.path}:
            gang = [pod for pod in self._world.pods.values()
                    if (known := self._owners.known(pod)) is not None and known.uid == uid]
            self.replacements.expect(incident, uid, gang)

    def noted(self, restarted: Iterable[Restarted]) -> None:
        """These stand on a Node's record now, so the owners may be resumed."""
        restarted = tuple(restarted)
        self.remember(restarted)
        self._noted.update(one.id for one in restarted)
        self._changed = True

    def pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        """Look up the owner of a new pod before anybody asks for it; tell whose replacements have come."""
        pod = new or old
        if pod is None:
            return
        self._changed = True
        owner = self._owners.known(pod)
        if new is not None and owner is None and pod.owner is not None and pod.owner.uid not in self._asked:
            self._asked.add(pod.owner.uid)
            self._elsewhere(lambda: self._look_up(pod))
        if owner is not None and owner.uid in self.replacements.owners():
            self._replaced(owner.uid)

    def _look_up(self, pod: PodView) -> Call:
        found = try_owner(self._owners, pod)

        def take() -> None:
            uid = "" if pod.owner is None else pod.owner.uid
            self._asked.discard(uid)
            self._changed = True
            if found is not None and found.uid in self.replacements.owners():
                self._replaced(found.uid)
        return take

    def _replaced(self, uid: str) -> None:
        pods = [pod for pod in self._world.pods.values()
                if (known := self._owners.known(pod)) is not None and known.uid == uid]
        for reached in self.replacements.look(uid, pods):
            self._stamp(reached.incident, running=reached.running)

    def _stamp(self, incident: str, *, running: bool) -> None:
        for name in self._world.nodes:
            record = self._world.record_of(name)
            if record is not None and record.incident == incident:
                self._tell(Happening(what="running" if running else "bound", at=self._now(), record=record,
                                     node=self._world.nodes[name]))
                return

    def find(self) -> None:
        """Look for restarts that stand on owners: those of a loop that ended in the middle, too."""
        notes: list[str] = []

        def deed() -> Call:
            found = list(gangs.under_way(self._api, notes.append))
            return lambda: self._adopt(found, notes)
        self._elsewhere(deed)

    def _adopt(self, found: Iterable[Going], notes: Iterable[str]) -> None:
        for going in found:
            if going.owner.uid not in self._going:
                self._going[going.owner.uid] = going
                self._noted.add(going.restart.id)
                self._changed = True
        for text in notes:
            self._tell(Happening(what="failed", at=self._now(), text=text))

    def look(self) -> None:
        """Resume every owner whose old pods are gone."""
        if not self._changed and not self._not_before:
            return
        self._changed = False
        now = self._now()
        for uid, going in list(self._going.items()):
            if uid in self._resuming or now < self._not_before.get(uid, now):
                continue
            if self._is_noted(going) and self._emptied(going):
                self._resuming.add(uid)
                self._elsewhere(lambda going=going: self._resume(going))  # type: ignore[misc] # bound now

    def _is_noted(self, going: Going) -> bool:
        """Whether a Node's record tells of it, or none is left that could."""
        return going.restart.id in self._noted or not any(
            name in self._world.nodes and self._world.record_of(name) is not None for name in going.restart.nodes)

    def _emptied(self, going: Going) -> bool:
        """Whether no old pod holds a seat that a new one would want, and none is of an owner not known yet."""
        for pod in self._world.pods.values():
            if pod.namespace != going.owner.namespace or pod.finished:
                continue
            owner = self._owners.known(pod)
            if owner is None or (owner.uid == going.owner.gang and not self._stays_behind(pod, going)):
                return False
        return True

    def _stays_behind(self, pod: PodView, going: Going) -> bool:
        """Whether it is ending on a node that takes no new pods, or went with its node, and is replaced already."""
        if not going.replaces:
            return False
        if pod.node and pod.node not in self._world.nodes:
            return True
        return pod.deleting and bool(pod.node) and self._world.record_of(pod.node) is not None

    def _resume(self, going: Going) -> Call:
        try:
            done = gangs.end(self._api, self._owners, going)
        except ApiError as error:
            text = f"{going.owner.title} could not be resumed: {error}"
            return lambda: self._not_resumed(going, text)
        return lambda: self._resumed(going, done=done)

    def _resumed(self, going: Going, *, done: bool) -> None:
        uid = going.owner.uid
        self._resuming.discard(uid)
        self._going.pop(uid, None)
        self._not_before.pop(uid, None)
        if done:
            self._tell_for(going, "resumed")
        for name in going.restart.nodes:
            self._touch(name)

    def _not_resumed(self, going: Going, text: str) -> None:
        self._resuming.discard(going.owner.uid)
        self._not_before[going.owner.uid] = self._now() + _TRY_AGAIN
        self._tell(Happening(what="failed", at=self._now(), owner=going.owner, text=text))

    def _tell_for(self, going: Going, what: What) -> None:
        now = self._now()
        for name in going.restart.nodes or ("",):
            node = self._world.nodes.get(name)
            record = self._world.record_of(name) if node is not None else None
            self._tell(Happening(what=what, at=now, node=node, record=record, owner=going.owner))


def _restarted(going: Going) -> Restarted:
    return Restarted(owner=going.owner.uid, name=going.owner.title, id=going.restart.id, at=going.restart.at)
