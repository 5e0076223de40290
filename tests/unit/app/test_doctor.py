"""Doctor as a whole, and as a command: one line a check, exit codes, never a traceback."""

import json
import os
from pathlib import Path

import pytest

from nodeguard.__main__ import main
from nodeguard.app.doctor import Doors, diagnose
from nodeguard.app.doctor_finding import exit_code
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.kube.api import Api, node_path
from nodeguard.kube.fake import FakeApi
from nodeguard.model.clock import SystemClock
from nodeguard.model.errors import ApiUnavailable, UserError
from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sim.node import SimulatedNode
from nodeguard.sources.host_clock import WallClock
from nodeguard.vendors.nvidia.nvml import Nvml

from .test_doctor_kube import ADMISSION, ReviewingApi, agent

CAP = pytest.CaptureFixture[str]
NODE = "gpu-7"


def flags(node: SimulatedNode) -> dict[str, str]:
    return {"node_name": node.name, "kmsg": str(node.log.path), "proc_root": str(node.proc_root),
            "sys_root": str(node.sys_root), "state_dir": str(node.state_dir), "listen": "127.0.0.1:0",
            "expect_gpus": str(len(node.slots))}


def verdicts(node: SimulatedNode, api: Api | UserError | None) -> tuple[dict[str, str], int]:
    found = diagnose(resolve_agent_settings(flags(node), {}), Doors(
        driver=Nvml(), api=api, ring=lambda: 1 << 20, kept=lambda: WallClock(synchronized=True, max_error=0.0),
        clock=SystemClock(), kubelet_root=node.root, pods_log_root=node.root, call_patience=0.5, patience=10.0))
    return {one.check: one.verdict for one in found}, exit_code(found)


def healthy_api() -> FakeApi:
    api = ReviewingApi(agent(NODE))
    api.add(node_path(NODE), {"metadata": {"uid": "u1", "labels": {"pool": "a"}}})
    for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        for name in ("nodes", "leases", "events"):
            api.add(f"{ADMISSION}/{kind}/nodeguard-agent-{name}", {})
    return api


def test_all_is_well() -> None:
    """On a healthy node everything is ok, doctor changes nothing, and the exit code is 0."""
    with SimulatedNode(NODE, 2) as node, SimulatedDriver.at(node.slots, node.uuids) as driver:
        node.attach(driver)
        (node.root / "device-plugins").mkdir()
        api = healthy_api()
        found, code = verdicts(node, api)
        assert code == 0
        assert {check: verdict for check, verdict in found.items() if verdict != "ok"} == {"kernel ring": "skipped"}
        assert set(found) >= {"kernel log", "boot ID", "NVML", "pods", "state", "rules", "API server", "rights",
                              "token", "confinement", "clock"}
        assert not api.writes(node_path(NODE))
        assert not node.state_dir.exists()


def test_the_api_server_is_away() -> None:
    """A blind spot; nothing more is asked, and what is on the node is told all the same."""
    api = healthy_api()
    api.fail("*", "/", ApiUnavailable("no answer"), times=99)
    with SimulatedNode(NODE, 2) as node, SimulatedDriver.at(node.slots, node.uuids):
        found, code = verdicts(node, api)
        assert (found["API server"], found["rules"], code) == ("blind", "ok", 1)
        assert "rights" not in found
        assert len(api.requests) == 1


def test_no_cluster_is_a_mistake_and_no_kube_is_none() -> None:
    """The first would keep the agent from starting; the second is what the operator wants."""
    with SimulatedNode(NODE, 2) as node, SimulatedDriver.at(node.slots, node.uuids):
        found, code = verdicts(node, UserError("no cluster"))
        assert (found["API server"], code) == ("blind", 2)
        found, code = verdicts(node, None)
        assert (found["API server"], code) == ("skipped", 0)


def test_a_quiesced_node_is_left_alone() -> None:
    """Opening the driver would make the reset fail for which it was quiesced; once that is over, it is asked."""
    with SimulatedNode(NODE, 2) as node, SimulatedDriver.at(node.slots, node.uuids) as driver:
        api = healthy_api()
        for until, verdict in (("2999-01-01T00:00:00Z", "skipped"), ("2001-01-01T00:00:00Z", "ok")):
            annotated = {"metadata": {"uid": "u1", "annotations": {"nodeguard.io/quiesce": until}}}
            api.add(node_path(NODE), annotated)
            driver.calls.clear()
            assert verdicts(node, api)[0]["NVML"] == verdict
            assert bool(driver.calls) == (verdict == "ok")


def run(capsys: CAP, *words: object) -> tuple[int, list[str], list[str]]:
    """Exit code, lines of stdout, lines of stderr."""
    code = main(["doctor", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err.splitlines()


def words(node: SimulatedNode) -> list[str]:
    return [word for name, value in flags(node).items() for word in (f"--{name.replace('_', '-')}", value)]


def test_text_for_people(capsys: CAP) -> None:
    """One line a check, what to do below it, a count at the end; here without a GPU, a cluster or NVML."""
    with SimulatedNode(NODE, 0) as node:
        (node.sys_root / "bus/pci/devices").mkdir(parents=True)
        code, out, err = run(capsys, "--no-kube", *words(node))
    assert (code, err) == (0, [])
    assert out[0].startswith("ok       kernel log ")
    assert " ok" in out[-1]


def test_json_lines(capsys: CAP) -> None:
    """One object a check."""
    with SimulatedNode(NODE, 1) as node, SimulatedDriver.at(node.slots, node.uuids):
        _, out, _ = run(capsys, "--no-kube", "--output", "json", *words(node))
    rows = [json.loads(line) for line in out]
    assert all(row.keys() == {"check", "verdict", "says", "do"} for row in rows)
    assert {row["check"]: row["verdict"] for row in rows}["NVML"] == "ok"


def test_a_blind_spot_is_exit_1(capsys: CAP) -> None:
    """The kernel log is not there."""
    with SimulatedNode(NODE, 0) as node:
        code, out, _ = run(capsys, "--no-kube", *words(node), "--kmsg", node.root / "none")
    assert code == 1
    assert out[0].startswith("blind ")


def test_users_mistakes_are_exit_2(capsys: CAP, tmp_path: Path) -> None:
    """A wrong flag as one line on stderr; a kubeconfig or rules that cannot be used as findings beside the others."""
    code, out, err = run(capsys, "--no-kube", "--listen", "nowhere")
    assert (code, out, len(err)) == (2, [], 1)
    with SimulatedNode(NODE, 0) as node:
        code, out, err = run(capsys, *words(node), "--kubeconfig", tmp_path / "none", "--rules", tmp_path / "none")
    assert (code, err) == (2, [])
    assert sum(str(tmp_path / "none") in line for line in out) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_without_root(capsys: CAP) -> None:
    """What root could see is a blind spot, and no error."""
    with SimulatedNode(NODE, 0) as node:
        (node.sys_root / "bus/pci/devices").mkdir(parents=True)
        node.state_dir.mkdir(mode=0o700)
        arguments = words(node)
        node.root.chmod(0o711)
        assert run(capsys, "--no-kube", *arguments)[0] == 0
        os.seteuid(65534)
        try:
            code, out, err = run(capsys, "--no-kube", *arguments)
        finally:
            os.seteuid(0)
    assert (code, err) == (1, [])
    assert any(line.startswith("blind") and "state" in line for line in out)
