"""The cluster as the loop sees it: Nodes and accelerator pods, indexed. Used by the deciding thread only."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from nodeguard.model.policy import Policy
from nodeguard.remediation import record, report
from nodeguard.remediation.budget import pool_of
from nodeguard.remediation.record import Record
from nodeguard.remediation.report import Report
from nodeguard.remediation.views import NodeView, PodView


class World:
    """Kept current by what the watches and the loop's own writes tell."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeView] = {}
        self.pods: dict[str, PodView] = {}
        self.claims: dict[str, tuple[str, ...]] = {}
        """ResourceClaims (``namespace/name``) → their device classes."""
        self._by_node: dict[str, dict[str, PodView]] = {}
        self._by_controller: dict[str, dict[str, PodView]] = {}
        self._records: dict[str, tuple[str | None, Record | None]] = {}
        self._reports: dict[str, tuple[str | None, Report]] = {}
        self._sizes: tuple[Policy, Mapping[str, int]] | None = None
        self.unreadable: set[str] = set()
        """Nodes whose record is of another generation; nothing is done there."""

    def set_node(self, name: str, node: NodeView | None) -> bool:
        """Take a Node's new state, or None when it is gone; whether it is news. An older state is no news."""
        if node is None:
            self._records.pop(name, None)
            self._reports.pop(name, None)
            self.unreadable.discard(name)
            self._sizes = None
            return self.nodes.pop(name, None) is not None
        known = self.nodes.get(name)
        if known is not None and known.uid == node.uid and not newer(node.version, known.version):
            return False
        self.nodes[name] = node
        if known is None or _counts_as(known) != _counts_as(node):
            self._sizes = None
        return True

    def set_pod(self, key: str, pod: PodView | None) -> None:
        """Take a pod's new state, or None when it is gone."""
        old = self.pods.pop(key, None)
        if old is not None:
            _drop(self._by_node, old.node, key)
            _drop(self._by_controller, _controller(old), key)
        if pod is not None:
            self.pods[key] = pod
            self._by_node.setdefault(pod.node, {})[key] = pod
            self._by_controller.setdefault(_controller(pod), {})[key] = pod

    def pods_on(self, node: str) -> tuple[PodView, ...]:
        """Accelerator pods bound to the node."""
        return tuple(self._by_node.get(node, {}).values())

    def controllers(self) -> Iterator[tuple[str, Mapping[str, PodView]]]:
        """The UID of every object that controls pods, and its pods; never without any."""
        return ((uid, pods) for uid, pods in self._by_controller.items() if uid)

    def accelerates(self, pod: PodView, policy: Policy) -> bool:
        """Whether the pod holds accelerators, by its resources or its claims' device classes."""
        classes = (word for claim in pod.claims for word in self.claims.get(f"{pod.namespace}/{claim}", ()))
        return any(map(policy.is_accelerator, pod.resources)) or any(map(policy.is_accelerator_class, classes))

    def record_of(self, name: str) -> Record | None:
        """The loop's record on the Node; None also for one that is not understood (see :attr:`unreadable`)."""
        text = self.nodes[name].record
        cached = self._records.get(name)
        if cached is None or cached[0] != text:
            self._records[name] = cached = (text, self._parse(name, text))
        return cached[1]

    def _parse(self, name: str, text: str | None) -> Record | None:
        self.unreadable.discard(name)
        try:
            return record.parse(text)
        except (ValueError, RecursionError):
            self.unreadable.add(name)
            return None

    def report_of(self, name: str) -> Report:
        """What the agent says."""
        text = self.nodes[name].faults
        cached = self._reports.get(name)
        if cached is None or cached[0] != text:
            self._reports[name] = cached = (text, report.parse(text))
        return cached[1]

    def accelerator_nodes(self, policy: Policy) -> Iterator[NodeView]:
        """Nodes that offer accelerators, or whose agent speaks of faults of some."""
        for node in self.nodes.values():
            if any(map(policy.is_accelerator, node.resources)) or node.faults is not None:
                yield node

    def sizes(self, policy: Policy) -> Mapping[str, int]:
        """Accelerator nodes by pool."""
        if self._sizes is None or self._sizes[0] != policy:
            sizes: defaultdict[str, int] = defaultdict(int)
            for node in self.accelerator_nodes(policy):
                sizes[pool_of(node, policy.budget)] += 1
            self._sizes = policy, sizes
        return self._sizes[1]


def _controller(pod: PodView) -> str:
    return pod.owner.uid if pod.owner is not None else ""


def _drop(index: dict[str, dict[str, PodView]], word: str, key: str) -> None:
    index[word].pop(key, None)
    if not index[word]:
        del index[word]


def _counts_as(node: NodeView) -> tuple[object, ...]:
    """What decides whether it is an accelerator node, and of which pool."""
    return (frozenset(node.resources), node.labels, node.faults is None)


def newer(version: str, than: str) -> bool:
    """Whether a resourceVersion is newer than another of the same object.

    They grow (API conventions of Kubernetes 1.35: comparable as whole numbers); where they are no numbers, what comes
    later counts as newer.
    """
    if version.isdigit() and than.isdigit():
        return int(version) > int(than)
    return version != than
