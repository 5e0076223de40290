"""The policy of the remediation loop: what it may do, how much of it at once, and to whom never."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

NoSpare = Literal["hold", "restart", "evict-rank"]
"""What to do with a gang that has nowhere to go: wait, restart it nevertheless, or evict only the ranks concerned."""

RESOURCES = (
    "nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu", "gpu.intel.com/*", "huawei.com/Ascend*",
)
"""Names under which device plugins offer accelerators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many nodes may be out of service for repair."""

    max_unavailable_percent: float = 5.0
    """Of the accelerator nodes (of a pool, where pools are told apart); rounded down, but never below one node."""
    max_nodes: int = 5
    """Nodes that may be begun within ``window``."""
    window: float = 600.0
    """Seconds."""
    pool_label: str | None = None
    """Node label whose values are pools with a percentage of their own; None: all nodes are one pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """So many nodes newly at fault within a moment are one cause, and no node's own fault."""

    at_least: int = 10
    percent: float = 10.0
    """Of the accelerator nodes; the larger of the two counts."""
    within: float = 60.0
    """Seconds."""
    cooldown: float = 600.0
    """Seconds without another storm until the loop acts again, on what is at fault then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleBrake:
    """One rule that taints so many nodes is a bad rule: every agent is told to add no more taints for it."""

    at_least: int = 5
    percent: float = 5.0
    """Of the accelerator nodes; the larger of the two counts, and it must be exceeded."""
    within: float = 600.0
    """Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """How pods are made to leave."""

    deadline: float = 900.0
    """Seconds after which pods that are still there are reported as stuck."""
    pdb_deadline: float = 600.0
    """Seconds for which a disruption budget is asked again before it is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gangs:
    """How jobs of several pods are restarted, through their top owner."""

    no_spare: NoSpare = "hold"
    apart: float = 300.0
    """Seconds between two restarts of one owner."""
    per_day: int = 6
    """Restarts of one owner; after them a person is needed."""
    deadline: float = 600.0
    """Seconds until an owner whose pods do not go is reported as stuck."""
    recreate_failed_jobs: bool = False
    """Delete and create anew a Job that waits in its back-off because ranks failed (only one without an owner)."""
    restart_kueue: bool = False
    """Restart what Kueue manages through its Workload's ``spec.active``; else its pods are evicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """When a node is given back."""

    healthy_for: float = 60.0
    """Seconds for which the agent must have nothing to complain of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclude:
    """What the loop never touches."""

    node_labels: tuple[tuple[str, str | None], ...] = (("nodeguard.io/exclude", None),)
    """Label and value (None: any value) of nodes that are only watched."""
    namespaces: tuple[str, ...] = ("kube-system",)
    """Patterns; pods there are not evicted, and their owners not restarted."""
    priority_classes: tuple[str, ...] = ("system-node-critical", "system-cluster-critical")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything a policy file says."""

    resources: tuple[str, ...] = RESOURCES
    """Patterns of the resource names that make a pod an accelerator pod."""
    device_classes: tuple[str, ...] = ("gpu.nvidia.com", "mig.nvidia.com", "gpu.amd.com", "gpu.intel.com")
    """Patterns of the DRA device classes that do the same for a pod's resource claims."""
    budget: Budget = field(default_factory=Budget)
    storm: Storm = field(default_factory=Storm)
    rule_brake: RuleBrake = field(default_factory=RuleBrake)
    drain: Drain = field(default_factory=Drain)
    gangs: Gangs = field(default_factory=Gangs)
    release: Release = field(default_factory=Release)
    exclude: Exclude = field(default_factory=Exclude)
    dry_run: bool = False
    """Decide and tell, and write nothing."""
    hash: str = ""
    """Of the file's content, for the decision record."""

    def is_accelerator(self, resource: str) -> bool:
        """Whether a resource of this name is an accelerator."""
        return any(fnmatchcase(resource, pattern) for pattern in self.resources)

    def is_accelerator_class(self, device_class: str) -> bool:
        """Whether devices of this class are accelerators."""
        return any(fnmatchcase(device_class, pattern) for pattern in self.device_classes)
