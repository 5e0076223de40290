"""`nodeguard demo --kubeconfig` against a real API server, scheduler and Job controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nodeguard.__main__ import main

from .agents import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .controlplane.admin import Admin
    from .controlplane.cluster import Cluster

OURS = "nodeguard-demo-"
MOVED = ("the loop takes a budget slot and marks the node", "the gang is suspended", "the gang is resumed",
         "every rank is bound to a healthy node", "every rank runs: rank 0 on", "verified: the node is released",
         "the other 2 nodes stay clean", "0 pods failed")
WORDS = {
    "ecc": MOVED, "xid79": (*MOVED, "the node reboots (imitated)"),
    "hang": ("effect noschedule: new pods stay away, nobody is evicted",),
    "storm": ("the loop: storm,", "the budget is 3 (10 % of 33)", "nothing is replayed",
              "the training was not touched"),
}


def left(admin: Admin) -> Iterator[str]:
    """The demo's objects that are still there, but for what the cluster itself says of a Node that is gone."""
    for path in ("/api/v1/nodes", "/api/v1/pods", "/apis/batch/v1/jobs", "/api/v1/namespaces", "/api/v1/events",
                 "/apis/coordination.k8s.io/v1/leases", "/api/v1/configmaps"):
        for one in admin.get(path)["items"]:
            where = f"{one['metadata'].get('namespace', '')}/{one['metadata']['name']}"
            said_by = one.get("source", {}).get("component") or one.get("reportingComponent") or "nodeguard"
            if OURS in where and said_by.startswith("nodeguard"):
                yield f"{path}: {where}"


@pytest.mark.parametrize("scenario", WORDS)
def test_the_demo_on_a_real_cluster(
    control_plane: Cluster, admin: Admin, scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same timeline to its end, and nothing of it stays: no Node, Job, pod, namespace, Lease or Event."""
    assert main(["demo", "--kubeconfig", str(control_plane.kubeconfig), "--scenario", scenario]) == 0
    printed = capsys.readouterr().out
    assert [words for words in WORDS[scenario] if words not in printed] == [], printed
    eventually(lambda: not list(left(admin)), "nothing of the demo is left", 40.0, lambda: list(left(admin)))
