"""``nodeguard incidents`` and ``nodeguard cleanup`` on a real control plane, after a real agent and a real loop."""

from __future__ import annotations

import json
import subprocess  # noqa: TID251  # runs the commands
import sys
from typing import TYPE_CHECKING

import pytest

from nodeguard.kube.client import KubeClient
from nodeguard.model.clock import SystemClock
from nodeguard.remediation import restart
from nodeguard.remediation.happenings import Happening
from nodeguard.remediation.incidents import Incidents
from nodeguard.remediation.incidents_ring import Ring, path
from nodeguard.remediation.outlets import Outlets
from nodeguard.remediation.owners import Owner
from nodeguard.remediation.record import Record
from nodeguard.remediation.views import node_view
from nodeguard.sinks.remediation_metrics import RemediationMetrics

from .agents import Rig, eventually
from .hops import break_gpu
from .loops import LOOP_ACCOUNT, LoopProcess, Nodes, create, discard, installed, job, record, wait_running
from .manifests import NAMESPACE, agent_token

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .controlplane.admin import Admin, Object
    from .controlplane.cluster import Cluster

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
FOREIGN: Object = {"key": "theirs.example/x", "value": "1", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def shipped(control_plane: Cluster) -> Iterator[None]:
    """Everything shipped is installed."""
    with installed(control_plane):
        yield


def command(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``nodeguard`` as a person would, without a terminal."""
    return subprocess.run([sys.executable, "-m", "nodeguard", *words, "--kubeconfig", str(config)],
                          capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)


def test_everything_of_nodeguard_s_goes_and_nothing_else(
    control_plane: Cluster, admin: Admin, namespace: str, tmp_path: Path, shipped: None
) -> None:
    """What agent and loop wrote on Node, Job and in their namespace; foreign taint, condition and cordon stay."""
    with Nodes(control_plane, 3) as nodes, LoopProcess(control_plane, tmp_path) as loop:
        loop.wait_leading()
        job_path = create(admin, namespace, job("llm", nodes.place))
        sick = wait_running(admin, namespace, nodes.place, 2)[0]["spec"]["nodeName"]
        with Rig(sick, nodes.kubeconfig(sick)) as rig:
            agent = rig.start()
            rig.wait_ready()
            break_gpu(rig.hardware)
            admin.wait_for(f"/api/v1/nodes/{sick}", lambda node: (record(node) or {}).get("state") == "repairing",
                           seconds=30)
            agent.kill()
            loop.kill()
        suspend(admin, job_path)
        admin.patch(f"/api/v1/nodes/{sick}", {"spec": {"unschedulable": True, "taints": [
            *admin.get(f"/api/v1/nodes/{sick}")["spec"]["taints"], FOREIGN]}})
        before = admin.get(f"/api/v1/nodes/{sick}")

        dry = command(control_plane.kubeconfig, "cleanup", "--dry-run")
        assert dry.returncode == 0, dry.stderr
        assert f"would clean up Job {namespace}/llm" in dry.stdout
        assert f"would clean up Node {sick}" in dry.stdout
        assert marks(admin.get(f"/api/v1/nodes/{sick}")) == marks(before) != ([], [], [])
        refused = command(control_plane.kubeconfig, "cleanup")
        assert (refused.returncode, "give --yes" in refused.stderr) == (2, True)

        done = command(control_plane.kubeconfig, "cleanup", "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        after = admin.get(f"/api/v1/nodes/{sick}")
        assert marks(after) == ([], [], [])
        assert FOREIGN in [{key: one.get(key) for key in FOREIGN} for one in after["spec"]["taints"]]
        assert after["spec"]["unschedulable"] is True
        assert {one["type"] for one in after["status"]["conditions"]} >= {"Ready"}
        standing = admin.get(job_path)
        assert standing["spec"]["suspend"] is False
        assert "nodeguard.io/restart" not in {**standing["metadata"].get("labels", {}),
                                             **standing["metadata"].get("annotations", {})}
        left = {one["metadata"]["name"] for one in admin.get(LEASES)["items"]}
        assert not left & {sick, LOOP_ACCOUNT}
        assert "no mark of nodeguard" in command(control_plane.kubeconfig, "cleanup", "--yes").stdout
        discard(admin, namespace, [job_path], nodes.place)


def suspend(admin: Admin, job_path: str) -> None:
    """As a loop that died just after it had suspended the Job."""
    begun = restart.Restart(id="i0-0", nodes=("gone",), at=1.0, deadline=2.0)
    eventually(lambda: admin.patch(job_path, restart.suspend(admin.get(job_path), "suspend", begun)), "suspended")


def marks(node: Object) -> tuple[list[str], list[str], list[str]]:
    """nodeguard's annotations, taints and conditions."""
    own = [key for key in node["metadata"].get("annotations", {}) if key.startswith("nodeguard.io/")]
    taints = [one["key"] for one in node["spec"].get("taints", ()) if one["key"].startswith("nodeguard.io/")]
    conditions = [one["type"] for one in node["status"]["conditions"] if one["type"].startswith(("Gpu", "Nodeguard"))]
    return sorted(own), sorted(taints), sorted(conditions)


def test_without_the_rights_each_refusal_is_a_plain_line(control_plane: Cluster, node: str, shipped: None) -> None:
    """An agent may do none of it; what cannot be looked for is said, and the exit code tells."""
    config = control_plane.kubeconfig_for_token(agent_token(control_plane, node))
    done = command(config, "cleanup", "--yes")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "restarts of Job cannot be looked for" in done.stderr
    assert "403" in done.stderr


def test_the_ring_is_written_under_the_shipped_rights(
    control_plane: Cluster, admin: Admin, node: str, namespace: str, shipped: None
) -> None:
    """Created, merged with another leader's, read by the command; Events on the Node and on the Job's namespace."""
    api = KubeClient.from_kubeconfig(control_plane.kubeconfig_for_token(control_plane.token(NAMESPACE, LOOP_ACCOUNT)))
    view = node_view(admin.get(f"/api/v1/nodes/{node}"))
    owner = Owner(uid="u", path="/apis/batch/v1", namespace=namespace, name="llm", kind="Job", api_version="batch/v1",
                  how="suspend")
    work = Record(state="quarantined", incident="i1", since=100.0, rules=("gpu-lost",), action="reboot_node",
                  stamps={"detected": 100.0, "quarantined": 100.25})
    outlets = Outlets(api, SystemClock(), NAMESPACE, "one", RemediationMetrics())
    outlets.tell(Happening(what="begun", at=100.25, node=view, record=work))
    outlets.tell(Happening(what="suspended", at=100.5, node=view, record=work, owner=owner))
    outlets.close()
    other = Incidents(api, SystemClock(), NAMESPACE)
    other.take(Happening(what="resumed", at=101.0, node=view, record=work, owner=owner))
    other.close()
    (told,) = json.loads(command(control_plane.kubeconfig, "incidents", "--node", node, "-o", "json").stdout)
    assert list(told["stamps"]) == ["detected", "quarantined", "suspended", "resumed"]
    assert (told["machine"], told["owners"]) == (view.uid, [{"uid": "u", "name": f"Job {namespace}/llm"}])
    assert "+0.500s" in command(control_plane.kubeconfig, "incidents", "--node", node, "--open").stdout
    assert outlets.events.status.written_total == 3, outlets.events.status
    about_job = admin.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    assert [one["reason"] for one in about_job] == ["GangSuspended"]
    admin.delete(path(NAMESPACE))


def test_a_full_ring_is_one_config_map(control_plane: Cluster, admin: Admin, node: str, shipped: None) -> None:
    """The API server takes what the bounds let through."""
    api = KubeClient.from_kubeconfig(control_plane.kubeconfig_for_token(control_plane.token(NAMESPACE, LOOP_ACCOUNT)))
    view = node_view(admin.get(f"/api/v1/nodes/{node}"))
    ring = Ring(api, NAMESPACE)
    incidents = Incidents(api, SystemClock(), NAMESPACE, ring=ring)
    for number in range(1100):
        work = Record(state="quarantined", incident=f"i{number:05}", since=float(number), rules=("r" * 60,),
                      reason="w" * 1000)
        for what in ("begun", "waits", "closed"):
            incidents.take(Happening(what=what, at=float(number), node=view, record=work, text="released " * 20))
    incidents.close()
    kept = len(list(ring))
    assert 300 < kept <= 1000
    assert len(admin.get(path(NAMESPACE))["data"]) == kept
    admin.delete(path(NAMESPACE))
