"""The label by which NVIDIA's driver upgrade controller says that it works on a node."""

from collections.abc import Mapping

LABEL = "nvidia.com/gpu-driver-upgrade-state"
"""Set by k8s-operator-libs, pkg/upgrade."""

_AT_REST = frozenset({"", "unknown", "upgrade-required", "upgrade-done", "upgrade-failed"})


def is_under_way(labels: Mapping[str, str]) -> bool:
    """Whether a Node with these labels has its driver upgraded now."""
    return labels.get(LABEL, "") not in _AT_REST
