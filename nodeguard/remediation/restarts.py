"""The restarts of gangs that are under way, and when each may be resumed. Used by the deciding thread only."""

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping

from nodeguard.kube.api import Api
from nodeguard.model.errors import ApiError
from nodeguard.remediation import gangs, recreate
from nodeguard.remediation.calls import Call, Elsewhere
from nodeguard.remediation.gangs import Going, Leading
from nodeguard.remediation.happenings import Happening, Tell, What
from nodeguard.remediation.members import Members
from nodeguard.remediation.owners import RESTARTED, Owner, Owners
from nodeguard.remediation.record import Record, Restarted
from nodeguard.remediation.replacements import Replacements
from nodeguard.remediation.views import PodView
from nodeguard.remediation.world import World

_TRY_AGAIN = 1.0
_DAY = 86_400.0
_FIND_TRIES = 30
_FORGOTTEN = 120.0
"""Seconds, longer than any list is on its way."""


class Restarts:
    """Keeps every restart until its owner is resumed, whoever began it."""

    def __init__(self, api: Api, owners: Owners, world: World, tell: Tell,  # noqa: PLR0913
                 elsewhere: Elsewhere, touch: Callable[..., None], now: Callable[[], float],
                 leading: Leading, namespace: str) -> None:
        self._api, self._owners, self._world = api, owners, world
        self._tell, self._elsewhere, self._touch, self._now = tell, elsewhere, touch, now
        self._leading, self._namespace = leading, namespace
        self._members = Members(owners, world, elsewhere, now, self._owner_told)
        self._going: dict[str, Going] = {}
        self._noted: set[str] = set()
        """Identities of restarts that stand on a Node's record, or need not."""
        self._unnoted: dict[str, dict[str, Restarted]] = {}
        """Node → restarts that its record is still to tell of, and that nobody has to end."""
        self._resuming: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._late: set[str] = set()
        """Restarts of which it was told that their pods do not go."""
        self._ended: dict[str, float] = {}
        """Restarts that have ended lately: a list that was asked for before may still tell of them."""
        self._history: dict[str, dict[str, float]] = {}
        self.replacements = Replacements()
        self._renewed: set[str] = set()
        """Owners whose replacements are to be counted anew."""
        self._changed = True
        self._look_at, self._find_at = float("-inf"), float("inf")
        self._find_again = 0

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
        self.remember([_restarted(going)])
        self._changed = True

    def commanded(self, node: str, restarted: Iterable[Restarted]) -> None:
        """These restarts go on without the loop; they count, and the Node's record is to tell of them."""
        for one in restarted:
            self.remember([one])
            self._unnoted.setdefault(node, {})[one.id] = one

    def over(self, owner: str) -> None:
        """The restart that was believed to be under way is not."""
        if owner not in self._resuming:
            self._end(owner)

    def missing(self, name: str, record: Record | None) -> tuple[Restarted, ...]:
        """Restarts for this node that its record does not tell of yet; they are not resumed before."""
        known = {one.id for one in record.restarts} if record is not None else set()
        going = (_restarted(going) for going in self._going.values() if name in going.restart.nodes)
        return tuple(one for one in (*going, *self._unnoted.get(name, {}).values()) if one.id not in known)

    def goes_on_without(self, pod: PodView, done: Container[str]) -> bool:
        """Whether a failed pod is missed: its gang is one to restart whole, has other pods, and is none of ``done``."""
        owner = self._members.owner(pod)
        return owner is not None and owner.how in RESTARTED and owner.uid not in done and any(
            not one.finished and one.uid != pod.uid for one in self._members.of(owner.uid))

    def evicted(self, incident: str, pods: Iterable[PodView]) -> None:
        """These pods were evicted one by one: what replaces them is waited for."""
        for uid in {owner.uid for pod in pods if (owner := self._owners.known(pod)) is not None and owner.path}:
            self.replacements.expect(incident, uid, self._members.of(uid))

    def noted(self, restarted: Iterable[Restarted]) -> None:
        """These stand on a Node's record now, so the owners may be resumed."""
        restarted = tuple(restarted)
        self.remember(restarted)
        ids = {one.id for one in restarted}
        self._noted |= ids
        for by_id in self._unnoted.values():
            for one in ids & by_id.keys():
                del by_id[one]
        self._changed = True

    def node_gone(self, name: str) -> None:
        """The Node was deleted: its record tells nothing any more, and its pods are no more."""
        self._unnoted.pop(name, None)
        self._changed = True

    def pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        """Look up the owner of a new pod before anybody asks for it; tell whose replacements have come."""
        pod = new or old
        if pod is None:
            return
        self._changed = True
        owner = self._owners.known(pod)
        if owner is not None and owner.uid in self.replacements.owners():
            self._renewed.add(owner.uid)
        if new is not None and owner is None:
            self._members.ask(pod)

    def _owner_told(self, owner: Owner | None) -> None:
        self._changed = True
        if owner is not None and owner.uid in self.replacements.owners():
            self._renewed.add(owner.uid)

    def _count_renewed(self) -> None:
        renewed, self._renewed = self._renewed, set()
        for uid in renewed:
            for reached in self.replacements.look(uid, self._members.of(uid)):
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
        self._prune()
        notes: list[str] = []
        now, before = self._now(), frozenset(self._going)

        def deed() -> Call:
            found = list(gangs.under_way(self._api, notes.append))
            deleted, failure = recreate.try_under_way(self._api, self._namespace, now)
            notes.extend(filter(None, [failure]))
            return lambda: self._found((*found, *deleted), notes, before)
        self._elsewhere(deed)

    def find_until_told(self) -> None:
        """An owner may have been suspended without an answer: look at once, and soon again if that is not told."""
        self._find_again = _FIND_TRIES
        self.find()

    def _prune(self) -> None:
        """Forget what is of no more use, and look at everything once more."""
        now = self._now()
        self._members.prune()
        self._history = {uid: kept for uid, by_id in self._history.items()
                         if (kept := {one: at for one, at in by_id.items() if at > now - _DAY})}
        ids = {going.restart.id for going in self._going.values()}
        self._noted &= ids
        self._late &= ids
        self._ended = {one: at for one, at in self._ended.items() if at > now - _FORGOTTEN}
        self._changed = True

    def _found(self, found: Iterable[Going], notes: Iterable[str], before: frozenset[str]) -> None:
        """``before``: owners whose restarts stood when the list was asked for, and so are on it unless they ended."""
        listed = {going.owner.uid: going for going in found}
        for going in listed.values():
            if self._adopt(going) and self._find_again:
                self._tell_for(going, "suspended")
        for text in notes:
            self._tell(Happening(what="failed", at=self._now(), text=text))
        if notes:
            self._find_at = self._now() + _TRY_AGAIN if self._find_again else float("inf")
            return
        self._find_at, self._find_again = float("inf"), 0
        for uid in before - listed.keys() - self._resuming:
            self._end(uid)

    def _adopt(self, going: Going) -> bool:
        known = self._going.get(going.owner.uid)
        if going.owner.uid in self._resuming or going.restart.id in self._ended or (
                known is not None and known.restart.id == going.restart.id and going.suspended):
            return False
        self._going[going.owner.uid] = going
        self._noted.add(going.restart.id)
        self.remember([_restarted(going)])
        self._changed = True
        return True

    def look(self) -> None:
        """Resume every owner whose old pods are gone; tell of those that are late."""
        now = self._now()
        self._count_renewed()
        if now >= self._find_at:
            self._find_at, self._find_again = float("inf"), self._find_again - 1
            self.find()
        if not self._changed and now < self._look_at:
            return
        self._changed, self._look_at = False, now + _TRY_AGAIN if self._going else float("inf")
        for uid, going in list(self._going.items()):
            if uid in self._resuming or now < self._not_before.get(uid, now):
                continue
            late = now >= going.restart.deadline
            staying = None if uid in self._not_before else self._members.staying(going, late=late)
            if not going.suspended or (staying is None and (late or self._is_noted(going))):
                self._resuming.add(uid)
                self._elsewhere(lambda going=going: self._resume(going))  # type: ignore[misc] # bound now
            elif late and going.restart.id not in self._late:
                self._late.add(going.restart.id)
                self._tell_late(going, staying or "its nodes")

    def _tell_late(self, going: Going, staying: str) -> None:
        text = f"{going.owner.title} stays suspended: {staying} does not go"
        self._tell(Happening(what="doubt", at=self._now(), owner=going.owner, text=text))
        self._tell_for(going, "waits", text)

    def _is_noted(self, going: Going) -> bool:
        """Whether a Node's record tells of it, or none is left that could."""
        return going.restart.id in self._noted or not any(
            name in self._world.nodes and self._world.record_of(name) is not None for name in going.restart.nodes)

    def _resume(self, going: Going) -> Call:
        made = None
        try:
            if going.restart.step == recreate.DELETED:
                made = recreate.end(self._api, self._namespace, going, self._leading)
                done = made is not None
            else:
                done = gangs.end(self._api, self._owners, going, self._leading)
        except ApiError as error:
            text = f"{going.owner.title} could not be resumed: {error}"
            return lambda: self._not_resumed(going, text)
        return lambda: self._resumed(going, done=done, made=made)

    def _resumed(self, going: Going, *, done: bool, made: str | None) -> None:
        # done, but not told: the answer to an earlier try was lost
        done = done or going.owner.uid in self._not_before
        self._end(going.owner.uid)
        if made:
            # what was restarted goes on under another UID, and its restarts count together
            again = dataclasses.replace(_restarted(going), owner=made, id=f"{going.restart.id}-anew")
            for name in going.restart.nodes:
                self.commanded(name, [again])
        if done:
            self._tell_for(going, "resumed")
        for name in going.restart.nodes:
            self._touch(name)

    def _end(self, uid: str) -> None:
        going = self._going.pop(uid, None)
        if going is not None:
            self._ended[going.restart.id] = self._now()
        self._resuming.discard(uid)
        self._not_before.pop(uid, None)

    def _not_resumed(self, going: Going, text: str) -> None:
        self._resuming.discard(going.owner.uid)
        self._not_before[going.owner.uid] = self._now() + _TRY_AGAIN
        self._tell(Happening(what="failed", at=self._now(), owner=going.owner, text=text))

    def _tell_for(self, going: Going, what: What, text: str = "") -> None:
        now = self._now()
        for name in going.restart.nodes or ("",):
            node = self._world.nodes.get(name)
            record = self._world.record_of(name) if node is not None else None
            self._tell(Happening(what=what, at=now, node=node, record=record, owner=going.owner, text=text))


def _restarted(going: Going) -> Restarted:
    return Restarted(owner=going.owner.uid, name=going.owner.title, id=going.restart.id, at=going.restart.at)
