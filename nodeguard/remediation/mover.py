"""Makes pods leave: through their top owner where that restarts a gang, else by eviction. For several threads."""

import contextlib
import dataclasses
import hashlib
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nodeguard.kube.api import Api, Object
from nodeguard.model.errors import ApiConflict, ApiError
from nodeguard.model.policy import Policy
from nodeguard.remediation import gangs, recreate
from nodeguard.remediation.evict import Outcome, evict
from nodeguard.remediation.gangs import Begun, Leading, still_leading
from nodeguard.remediation.kueue import workload_of
from nodeguard.remediation.owners import RESTARTED, Owner, Owners, try_owner
from nodeguard.remediation.pdbs import try_objection
from nodeguard.remediation.record import Restarted
from nodeguard.remediation.restart import Restart
from nodeguard.remediation.seats import enough
from nodeguard.remediation.tries import Tries
from nodeguard.remediation.views import NodeView, PodView

_DAY = 86_400.0
_TOO_OFTEN_AGAIN = 30.0
"""Seconds until an owner that was restarted too often is asked about again."""
_VOLCANO_COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/{}/commands"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """For whom pods are to leave."""

    node: str
    incident: str
    policy: Policy
    now: float
    """Unix seconds."""
    pods: tuple[PodView, ...]
    """Every accelerator pod of the cluster as it was when the order was given."""
    nodes: tuple[NodeView, ...]
    """Every Node, likewise."""
    going: frozenset[str] = frozenset()
    """UIDs of owners that are being restarted: joining them needs no leave."""
    history: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Owner's UID → when it was restarted before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What one round did. Times are Unix seconds."""

    evicted: tuple[PodView, ...] = ()
    begun: tuple[Begun, ...] = ()
    waits: str = ""
    """Why something could not be begun; it is tried again."""
    person: str = ""
    """Why a person is needed."""
    over: tuple[Owner, ...] = ()
    """Owners whose restart, which was to be joined, has ended."""
    unsure: bool = False
    """Whether an owner may have been suspended without this being told."""
    commanded: tuple[Restarted, ...] = ()
    """Restarts that the owner's own controller was told to do, and that nobody has to end."""
    unknown: tuple[Owner, ...] = ()
    """Owners of kinds of which nobody knows whether they heal by themselves."""
    look_at: float | None = None


class Mover:
    """Evictions and restarts, each at its own pace. ``namespace``: of nodeguard's own objects."""

    def __init__(self, api: Api, owners: Owners, leading: Leading, namespace: str) -> None:
        self._api, self._owners, self._leading, self._namespace = api, owners, leading, namespace
        self.tries = Tries()
        self._restarted: dict[str, float] = {}
        """Owner's UID → when it was restarted last: two orders for one owner may be carried out side by side."""
        self._lock = threading.Lock()

    def move(self, leaving: Sequence[PodView], order: Order) -> Moved:
        """Ask every pod to leave, once."""
        groups: defaultdict[Owner, list[PodView]] = defaultdict(list)
        waits = []
        for pod in leaving:
            try:
                groups[self._as_policy(self._owners.of(pod), order.policy)].append(pod)
            except ApiError as error:
                waits.append(f"the owner of {pod.key} cannot be told: {error}")
                self.tries.later([pod], order.now)
        rounds = [self._group(owner, group, order) for owner, group in groups.items()]
        merged = _merge(rounds)
        return dataclasses.replace(merged, waits="; ".join(filter(None, (*waits, merged.waits))),
                                   look_at=self.tries.next_due(leaving))

    def _as_policy(self, owner: Owner, policy: Policy) -> Owner:
        if owner.how != "kueue" or not policy.gangs.restart_kueue:
            return owner
        return workload_of(self._api, owner) or owner

    def _group(self, owner: Owner, pods: Sequence[PodView], order: Order) -> Moved:
        if owner.how in RESTARTED:
            return self._leave(owner, pods, order) or self._restart(owner, pods, order)
        if owner.how == "volcano":
            return self._leave(owner, pods, order) or self._volcano(owner, pods, order)
        moved = self._evict(pods, order.now)
        return dataclasses.replace(moved, unknown=(owner,) if owner.how in ("evict-unknown", "kueue") else ())

    def gang_of(self, owner: Owner, pods: Iterable[PodView]) -> tuple[PodView, ...]:
        """The pods of an owner, as far as owners are known."""
        return tuple(pod for pod in pods if (known := self._owners.known(pod)) is not None and known.uid == owner.gang)

    def _leave(self, owner: Owner, pods: Sequence[PodView], order: Order) -> Moved | None:
        """What keeps the gang from being restarted as a whole; None: nothing does."""
        if owner.uid in order.going:
            return None
        return self._too_often(owner, pods, order) or self._unwelcome(owner, pods, order)

    def _too_often(self, owner: Owner, pods: Sequence[PodView], order: Order) -> Moved | None:
        limits, now = order.policy.gangs, order.now
        before = [at for at in order.history.get(owner.uid, ()) if at > now - _DAY]
        if len(before) >= limits.per_day:
            self.tries.later(pods, now, asked=_TOO_OFTEN_AGAIN)
            return Moved(person=f"{owner.title} was restarted {len(before)} times within a day")
        if before and now < max(before) + limits.apart:
            self.tries.later(pods, now, asked=max(before) + limits.apart - now)
            return Moved(waits=f"{owner.title} was restarted {now - max(before):.0f} s ago")
        return None

    def _unwelcome(self, owner: Owner, pods: Sequence[PodView], order: Order) -> Moved | None:
        for pod in order.pods:
            if pod.namespace == owner.namespace and not pod.finished:
                try_owner(self._owners, pod)
        gang = self.gang_of(owner, order.pods)
        objection = try_objection(self._api, owner.namespace, gang)
        if objection:
            self.tries.later(pods, order.now, blocked=True)
            return Moved(waits=objection)
        no_spare = order.policy.gangs.no_spare
        if no_spare == "restart" or enough(gang, order.nodes, order.pods, frozenset({order.node})):
            return None
        if no_spare == "evict-rank":
            return self._evict(pods, order.now)
        self.tries.later(pods, order.now)
        return Moved(waits=f"no spare seats for {owner.title}")

    def _restart(self, owner: Owner, pods: Sequence[PodView], order: Order) -> Moved:
        now = order.now
        wanted = Restart(id=restart_id(owner, order), nodes=(order.node,), at=now,
                         deadline=now + order.policy.gangs.deadline)
        try:
            begun = self._begin(owner, wanted, order)
        except ApiError as error:
            self.tries.later(pods, now)
            return Moved(unsure=True, waits=f"{owner.title} cannot be restarted: {error}")
        if begun.answer == "over":
            self.tries.later(pods, now)
            return Moved(over=(owner,), waits=f"the restart of {owner.title} has just ended")
        self.tries.sent(pods, now)
        return Moved(begun=(begun,))

    def _begin(self, owner: Owner, wanted: Restart, order: Order) -> Begun:
        joining = owner.uid in order.going or self._just_restarted(owner, order)
        if order.policy.gangs.recreate_failed_jobs and owner.how == "suspend" and not joining:
            begun = recreate.begin(self._api, self._owners, owner, wanted, self._namespace, self._leading)
            if begun is not None:
                return begun
        begun = gangs.begin(self._api, self._owners, owner, wanted, self._leading, join_only=joining)
        if begun.answer == "suspended":
            self._reserve(owner, order)
        return begun

    def _just_restarted(self, owner: Owner, order: Order) -> bool:
        """Whether it was restarted after what the order knows: then it may be joined, not restarted again."""
        with self._lock:
            at = self._restarted.get(owner.uid)
        return at is not None and at > order.now - order.policy.gangs.apart and at not in order.history.get(
            owner.uid, ())

    def _reserve(self, owner: Owner, order: Order) -> bool:
        """Note that the owner is restarted; whether nobody else has done so just now."""
        with self._lock:
            if self._restarted.get(owner.uid, float("-inf")) > order.now - order.policy.gangs.apart:
                return False
            self._restarted = {uid: at for uid, at in self._restarted.items() if at > order.now - _DAY}
            self._restarted[owner.uid] = order.now
            return True

    def _give_back(self, owner: Owner) -> None:
        with self._lock:
            self._restarted.pop(owner.uid, None)

    def _volcano(self, owner: Owner, pods: Sequence[PodView], order: Order) -> Moved:
        if not self._reserve(owner, order):
            self.tries.later(pods, order.now)
            return Moved(waits=f"{owner.title} is being restarted")
        name = restart_id(owner, order)
        target = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
                  "controller": True}
        command: Object = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "action": "RestartJob",
                           "metadata": {"name": name, "namespace": owner.namespace, "ownerReferences": [target]},
                           "target": target}
        try:
            still_leading(self._leading)
            with contextlib.suppress(ApiConflict):  # the same command was given before
                self._api.post(_VOLCANO_COMMANDS.format(owner.namespace), command)
        except ApiError as error:
            self._give_back(owner)
            self.tries.later(pods, order.now)
            return Moved(waits=f"{owner.title} cannot be restarted: {error}")
        self.tries.sent(pods, order.now)
        return Moved(evicted=tuple(pods), commanded=(
            Restarted(owner=owner.uid, name=owner.title, id=name, at=order.now),))

    def _evict(self, pods: Sequence[PodView], now: float) -> Moved:
        sent, waits = [], []
        for pod in pods:
            outcome = evict(self._api, pod) if self._leading() else Outcome("failed", reason="another replica leads")
            if outcome.answer in ("sent", "gone"):
                self.tries.sent([pod], now)
                sent.append(pod)
                continue
            self.tries.later([pod], now, blocked=outcome.answer == "blocked", asked=outcome.retry_after)
            waits.append(_why(pod, outcome))
        return Moved(evicted=tuple(sent), waits="; ".join(waits))


def restart_id(owner: Owner, order: Order) -> str:
    """The same for the same incident, owner and turn, so that doing it again after a crash is the same restart."""
    turn = len(order.history.get(owner.uid, ()))
    return f"{order.incident}-{hashlib.sha256(owner.uid.encode()).hexdigest()[:8]}-{turn}"


def _why(pod: PodView, outcome: Outcome) -> str:
    blocked = f"a PodDisruptionBudget keeps {pod.key}"
    return blocked if outcome.answer == "blocked" else f"{pod.key} cannot be evicted: {outcome.reason}"


def _merge(rounds: Iterable[Moved]) -> Moved:
    rounds = tuple(rounds)
    return Moved(
        evicted=tuple(pod for one in rounds for pod in one.evicted),
        begun=tuple(begun for one in rounds for begun in one.begun),
        waits="; ".join(filter(None, (one.waits for one in rounds))),
        over=tuple(owner for one in rounds for owner in one.over), unsure=any(one.unsure for one in rounds),
        commanded=tuple(restarted for one in rounds for restarted in one.commanded),
        person="; ".join(filter(None, (one.person for one in rounds))),
        unknown=tuple(owner for one in rounds for owner in one.unknown))


