"""Which pod a process belongs to, from its ``/proc/<pid>/cgroup``. Pure."""

import re

_UUID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
_HASH = r"[0-9a-f]{32}"
_POD = re.compile(rf"(?:.*-)?pod({_UUID}|{_HASH})(?:\.slice(?::.*)?)?")
"""One step of the path: ``pod<uid>`` (cgroupfs driver) or ``…kubepods[-burstable|-besteffort]-pod<uid>.slice`` (systemd
driver, in which a dash separates levels, so the UID's own are underscores); ``….slice:cri-containerd:<id>`` where the
kubelet uses the one and the runtime the other. The UID of a static pod, which the kubelet takes from a file, is a hash
without dashes (pkg/kubelet/cm/cgroup_manager_linux.go, pkg/kubelet/config/common.go)."""


def pod_uid(text: str) -> str | None:
    """UID of the pod that a process runs in; None: it runs in none, or the text does not tell.

    cgroup v1 has a line a hierarchy, v2 one with an empty second field; any of them may name the pod. The first pod on
    the way down is the node's: what is further down was made inside it, by a container engine or a cluster of its own.
    The top may be missing, or be ``..``, where the reader has a cgroup namespace of its own (cgroup_namespaces(7)).
    """
    for line in text.split("\n"):
        _, _, path = line.partition(":")[2].partition(":")
        for step in path.split("/"):
            found = _POD.fullmatch(step)
            if found is not None:
                return found[1].replace("_", "-")
    return None
