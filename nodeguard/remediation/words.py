"""What people and other controllers say of a node: hold, release, silence, and every reason to keep hands off."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodeguard.kube import upgrade
from nodeguard.kube.patches import unix_time
from nodeguard.model.policy import Policy
from nodeguard.remediation import marks
from nodeguard.remediation.report import Fault
from nodeguard.remediation.views import NodeView

_FOREIGN_TAINTS = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler is removing the node",
    "karpenter.sh/disrupted": "Karpenter is disrupting the node",
    "karpenter.sh/disruption": "Karpenter is disrupting the node",
    "node.cloudprovider.kubernetes.io/shutdown": "the cloud provider says that the node is shut down",
    "node.kubernetes.io/out-of-service": "the node is marked as out of service",
}
"""Keys of cluster-autoscaler utils/taints, Karpenter's pkg/apis/v1 and k8s.io/api core/v1."""

_KURED = "weave.works/kured-reboot-in-progress"
_SHUTTING_DOWN = "node is shutting down"
"""The kubelet's words in the Ready condition during a graceful shutdown (pkg/kubelet/nodestatus)."""

_MOST_SILENCES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A person's words on one Node. Times are Unix seconds."""

    hold_until: float | None
    release: bool
    silenced: frozenset[str]
    """Rules that are silenced now."""
    next_change: float | None
    """When time alone will change this."""


def words_of(node: NodeView, now: float) -> Words:
    """Read the annotations; what is not understood says nothing."""
    hold = unix_time(node.words.get(marks.HOLD)) if marks.HOLD in node.words else None
    silences = dict(_silences(node.words.get(marks.SILENCE, "")))
    ends = [end for end in (hold, *silences.values()) if end is not None and end > now]
    return Words(
        hold_until=hold if hold is not None and hold > now else None,
        release=node.words.get(marks.RELEASE) == "true",
        silenced=frozenset(rule for rule, end in silences.items() if end > now), next_change=min(ends, default=None))


def _silences(text: str) -> Iterable[tuple[str, float]]:
    for word in text.split(",")[:_MOST_SILENCES]:
        rule, colon, until = word.strip().partition(":")
        end = unix_time(until) if colon else None
        if end is not None:
            yield rule, end


def hands_off(node: NodeView, policy: Policy) -> str:
    """Why nothing irreversible may be done to the node; empty: nothing speaks against it."""
    return next(_reasons(node, policy), "")


def _reasons(node: NodeView, policy: Policy) -> Iterator[str]:
    if node.deleting:
        yield "the Node is being deleted"
    if node.unschedulable:
        yield "somebody cordoned the node"
    if _KURED in node.words:
        yield "kured is rebooting the node"
    if upgrade.is_under_way(node.labels):
        yield "the driver is being upgraded"
    if not node.ready and _SHUTTING_DOWN in node.ready_reason:
        yield "the node is shutting down"
    yield from (_FOREIGN_TAINTS[taint["key"]] for taint in node.taints if taint.get("key") in _FOREIGN_TAINTS)
    yield from (f"the policy excludes nodes with the label {label}" for label in excluding(node, policy))


def excluding(node: NodeView, policy: Policy) -> tuple[str, ...]:
    """The node's labels by which the policy excludes it: it is only watched, and its faults make no storm."""
    return tuple(label for label, value in policy.exclude.node_labels
                 if label in node.labels and value in (None, node.labels[label]))


def working(faults: Iterable[Fault], words: Words, ignored: Iterable[str]) -> tuple[Fault, ...]:
    """The faults that work comes from: neither silenced nor ignored by a person's release."""
    passed = frozenset(ignored)
    return tuple(one for one in faults if one.acts and one.rule not in words.silenced and one.key not in passed)
