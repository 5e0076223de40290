"""Whether a gang that is restarted finds room: healthy seats, less those that a pod of equal or higher rank would take.

An estimate: affinity and topology are not looked at, and a node counts as open to the gang when the gang's pods run
under the same taints already.
"""

from collections.abc import Iterable, Mapping, Sequence

from nodeguard.model.intent import TAINT_KEY
from nodeguard.remediation import marks
from nodeguard.remediation.views import NodeView, PodView

Free = dict[str, dict[str, int]]
"""Node → resource → how many are free."""

_CLOSING = ("NoSchedule", "NoExecute")
_OWN = (TAINT_KEY, marks.TAINT_KEY)


def enough(gang: Sequence[PodView], nodes: Iterable[NodeView], pods: Iterable[PodView], closed: frozenset[str]) -> bool:
    """Whether every pod of the gang finds a seat. ``closed``: nodes that are not to be used although they look open."""
    nodes, pods = tuple(nodes), tuple(pods)
    own = {pod.uid for pod in gang}
    used_by_gang = {pod.node for pod in gang if pod.node}
    tolerated = {taint.get("key") for node in nodes if node.name in used_by_gang for taint in node.taints}
    free = _free([node for node in nodes if node.name not in closed and _open(node, tolerated)],
                 [pod for pod in pods if pod.uid not in own])
    rank = max((pod.priority for pod in gang), default=0)
    rivals = [pod for pod in pods
              if not pod.node and not pod.finished and pod.uid not in own and pod.priority >= rank]
    for rival in sorted(rivals, key=_size, reverse=True):
        _take(free, rival.resources)
    return all(_take(free, pod.resources) for pod in sorted(gang, key=_size, reverse=True) if not pod.finished)


def _open(node: NodeView, tolerated: set[object]) -> bool:
    closing = [taint.get("key") for taint in node.taints if taint.get("effect") in _CLOSING]
    return (node.ready and not node.unschedulable and not node.deleting
            and all(key in tolerated and key not in _OWN for key in closing))


def _free(nodes: Iterable[NodeView], pods: Iterable[PodView]) -> Free:
    free = {node.name: dict(node.resources) for node in nodes if node.resources}
    for pod in pods:
        seats = free.get(pod.node)
        if seats is not None and not pod.finished:
            for name, amount in pod.resources.items():
                seats[name] = seats.get(name, 0) - amount
    return free


def _take(free: Free, wanted: Mapping[str, int]) -> bool:
    """Seat one pod on the fullest node that has room for it."""
    fitting = [seats for seats in free.values()
               if all(seats.get(name, 0) >= amount for name, amount in wanted.items())]
    if not fitting:
        return False
    chosen = min(fitting, key=lambda seats: sum(seats.get(name, 0) for name in wanted))
    for name, amount in wanted.items():
        chosen[name] -= amount
    return True


def _size(pod: PodView) -> int:
    return sum(pod.resources.values())
