"""Makes pods leave: through their top owner where that restarts a gang, else by eviction. For several threads."""

import dataclasses
import hashlib
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nodeguard.kube.api import Api, Object
from nodeguard.kube.pace import Backoff
from nodeguard.model.errors import ApiConflict, ApiError
from nodeguard.model.policy import Policy
from nodeguard.remediation import gangs
from nodeguard.remediation.evict import Outcome, evict
from nodeguard.remediation.gangs import Begun
from nodeguard.remediation.owners import RESTARTED, Owner, Owners
from nodeguard.remediation.pdbs import try_objection
from nodeguard.remediation.restart import Restart
from nodeguard.remediation.seats import enough
from nodeguard.remediation.views import NodeView, PodView

_DAY = 86_400.0
_SENT_AGAIN = 30.0
"""Seconds after which a pod whose eviction was answered well, and that is not ending, is asked again."""
_VOLCANO_COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/{}/commands"


@dataclass(slots=True)
class _Try:
    """Evictions of one pod."""

    backoff: Backoff
    next: float
    blocked_since: float | None = None


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
    blocked_since: float | None = None
    """Since when a disruption budget has refused."""
    unknown: tuple[Owner, ...] = ()
    """Owners of kinds of which nobody knows whether they heal by themselves."""
    look_at: float | None = None


class Mover:
    """Evictions and restarts, each at its own pace."""

    def __init__(self, api: Api, owners: Owners) -> None:
        self._api, self._owners = api, owners
        self._tries: dict[str, _Try] = {}
        self._lock = threading.Lock()

    def due(self, pods: Iterable[PodView], now: float) -> tuple[PodView, ...]:
        """Those pods that may be asked to leave (again) now."""
        with self._lock:
            return tuple(pod for pod in pods if (found := self._tries.get(pod.uid)) is None or found.next <= now)

    def next_due(self, pods: Iterable[PodView]) -> float | None:
        """When the first of these pods may be asked again."""
        with self._lock:
            return min((self._tries[pod.uid].next for pod in pods if pod.uid in self._tries), default=None)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        with self._lock:
            self._tries.pop(uid, None)

    def move(self, leaving: Sequence[PodView], order: Order) -> Moved:
        """Ask every pod to leave, once."""
        groups: defaultdict[Owner, list[PodView]] = defaultdict(list)
        waits = []
        for pod in leaving:
            try:
                groups[self._as_policy(self._owners.of(pod), order.policy)].append(pod)
            except ApiError as error:
                waits.append(f"the owner of {pod.key} cannot be told: {error}")
                self._later([pod], order.now)
        rounds = [self._group(owner, group, order) for owner, group in groups.items()]
        merged = _merge(rounds)
        return dataclasses.replace(merged, waits="; ".join(filter(None, (*waits, merged.waits))),
                                   look_at=self.next_due(leaving))

    def _as_policy(self, owner: Owner, policy: Policy) -> Owner:
        if owner.how != "kueue" or not policy.gangs.restart_kueue:
            return owner
        return workload_of(self._api, owner) or owner

    def _group(self, owner: Owner, pods: Sequence[PodView], order: Order) -> Moved:
        if owner.how in RESTARTED:
            return self._leave(owner, pods, order) or self._restart(owner, pods, order)
        if owner.how == "volcano":
            return self._volcano(owner, pods, order)
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
            self._later(pods, now, asked=_SENT_AGAIN)
            return Moved(person=f"{owner.title} was restarted {len(before)} times within a day")
        if before and now < max(before) + limits.apart:
            self._later(pods, now, asked=max(before) + limits.apart - now)
            return Moved(waits=f"{owner.title} was restarted {now - max(before):.0f} s ago")
        return None

    def _unwelcome(self, owner: Owner, pods: Sequence[PodView], order: Order) -> Moved | None:
        gang = self.gang_of(owner, order.pods)
        objection = try_objection(self._api, owner.namespace, gang)
        if objection:
            return Moved(waits=objection, blocked_since=self._later(pods, order.now, blocked=True))
        no_spare = order.policy.gangs.no_spare
        if no_spare == "restart" or enough(gang, order.nodes, order.pods, frozenset({order.node})):
            return None
        if no_spare == "evict-rank":
            return self._evict(pods, order.now)
        self._later(pods, order.now)
        return Moved(waits=f"no spare seats for {owner.title}")

    def _restart(self, owner: Owner, pods: Sequence[PodView], order: Order) -> Moved:
        now = order.now
        wanted = Restart(id=restart_id(order.incident, owner), nodes=(order.node,), at=now,
                         deadline=now + order.policy.gangs.deadline)
        try:
            begun = gangs.begin(self._api, self._owners, owner, wanted)
        except ApiError as error:
            self._later(pods, now)
            return Moved(waits=f"{owner.title} cannot be restarted: {error}")
        self._sent(pods, now)
        return Moved(begun=(begun,))

    def _volcano(self, owner: Owner, pods: Sequence[PodView], order: Order) -> Moved:
        name = restart_id(order.incident, owner)
        target = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
                  "controller": True}
        command: Object = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "action": "RestartJob",
                           "metadata": {"name": name, "namespace": owner.namespace, "ownerReferences": [target]},
                           "target": target}
        try:
            self._api.post(_VOLCANO_COMMANDS.format(owner.namespace), command)
        except ApiConflict:
            pass  # the same command was given before
        except ApiError as error:
            self._later(pods, order.now)
            return Moved(waits=f"{owner.title} cannot be restarted: {error}")
        self._sent(pods, order.now)
        return Moved(evicted=tuple(pods))

    def _evict(self, pods: Sequence[PodView], now: float) -> Moved:
        sent, waits, blocked = [], [], []
        for pod in pods:
            outcome = evict(self._api, pod)
            if outcome.answer in ("sent", "gone"):
                self._sent([pod], now)
                sent.append(pod)
                continue
            since = self._later([pod], now, blocked=outcome.answer == "blocked", asked=outcome.retry_after)
            blocked += [since] if since is not None else []
            waits.append(_why(pod, outcome))
        return Moved(evicted=tuple(sent), waits="; ".join(waits), blocked_since=min(blocked, default=None))

    def _sent(self, pods: Iterable[PodView], now: float) -> None:
        with self._lock:
            for pod in pods:
                self._tries[pod.uid] = _Try(Backoff(0.2, 10.0), now + _SENT_AGAIN)

    def _later(self, pods: Iterable[PodView], now: float, *, blocked: bool = False,
               asked: float | None = None) -> float | None:
        """Ask again after a while that grows; since when a disruption budget refuses."""
        since = None
        with self._lock:
            for pod in pods:
                found = self._tries.setdefault(pod.uid, _Try(Backoff(0.2, 10.0), now))
                found.next = now + found.backoff.next(asked)
                found.blocked_since = (found.blocked_since or now) if blocked else None
                since = found.blocked_since
        return since


def restart_id(incident: str, owner: Owner) -> str:
    """The same for the same incident and owner, so that doing it again after a crash is the same restart."""
    return f"{incident}-{hashlib.sha256(owner.uid.encode()).hexdigest()[:8]}"


def workload_of(api: Api, owner: Owner) -> Owner | None:
    """The Kueue Workload of a top owner, as something that can be made inactive; None: it has none, or is not told."""
    try:
        version = (api.get("/apis/kueue.x-k8s.io").get("preferredVersion") or {}).get("groupVersion", "")
        root = f"/apis/{version}/namespaces/{owner.namespace}/workloads"
        for item in api.get(root).get("items") or ():
            metadata = item["metadata"]
            if any(ref.get("uid") == owner.uid for ref in metadata.get("ownerReferences") or ()):
                return Owner(uid=metadata["uid"], path=f"{root}/{metadata['name']}", namespace=owner.namespace,
                             name=metadata["name"], kind="Workload", api_version=version, how="workload",
                             stands_for=owner.uid)
    except ApiError:
        return None
    return None


def _why(pod: PodView, outcome: Outcome) -> str:
    blocked = f"a PodDisruptionBudget keeps {pod.key}"
    return blocked if outcome.answer == "blocked" else f"{pod.key} cannot be evicted: {outcome.reason}"


def _merge(rounds: Iterable[Moved]) -> Moved:
    rounds = tuple(rounds)
    return Moved(
        evicted=tuple(pod for one in rounds for pod in one.evicted),
        begun=tuple(begun for one in rounds for begun in one.begun),
        waits="; ".join(filter(None, (one.waits for one in rounds))),
        blocked_since=min((one.blocked_since for one in rounds if one.blocked_since is not None), default=None),
        person="; ".join(filter(None, (one.person for one in rounds))),
        unknown=tuple(owner for one in rounds for owner in one.unknown))


