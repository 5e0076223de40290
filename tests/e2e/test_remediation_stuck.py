"""A pod that cannot end, because its GPU is dead (C49)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .agents import eventually
from .loops import (
    LoopProcess,
    Nodes,
    create,
    discard,
    fault,
    installed,
    pods,
    record,
    say_faults,
    wait_record,
    wait_running,
)
from .test_remediation_drain import QUIET, pod

if TYPE_CHECKING:
    from pathlib import Path

    from .controlplane.admin import Admin
    from .controlplane.cluster import Cluster


def test_c49_a_pod_that_cannot_end_is_reported_and_never_forced(
    control_plane: Cluster, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    """After the drain's deadline the node is stuck, with the pod's name; the pod is still there, asked once."""
    with installed(control_plane), Nodes(control_plane, 1, termination=3600) as nodes, LoopProcess(
            control_plane, tmp_path, {"drain": {"deadline": "2s", "pdbDeadline": "1s"}}) as impatient:
        impatient.wait_leading()
        create(admin, namespace, pod("training", nodes, 0))
        wait_running(admin, namespace, nodes.place, 1)
        say_faults(admin, nodes.names[0], fault())
        found = wait_record(admin, nodes.names[0], lambda one: one is not None and one["state"] == "stuck")
        assert f"{namespace}/training" in (record(found) or {})["reason"]
        time.sleep(QUIET)
        standing = pods(admin, namespace, nodes.place)
        assert [("deletionTimestamp" in one["metadata"], one["metadata"]["deletionGracePeriodSeconds"])
                for one in standing] == [(True, 30)]
        eventually(lambda: impatient.output().count('"evicted"') == 1, "it was asked once")
        discard(admin, namespace, [], nodes.place)
