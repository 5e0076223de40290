"""``nodeguard incidents`` against the embedded API server."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeguard.cli.incidents import add_arguments
from nodeguard.config.yamltree import load_yaml
from nodeguard.kube.client import KubeClient
from nodeguard.remediation.incidents_entry import Incident
from nodeguard.remediation.incidents_ring import Ring

BEGAN = 1_700_000_000.0


@pytest.fixture
def incidents(config: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command, which must succeed; what it printed."""
    def run(*words: str) -> str:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        args = parser.parse_args([*words, "--kubeconfig", str(config)])
        assert args.run(args) == 0
        return capsys.readouterr().out
    return run


@pytest.fixture
def ring(config: Path) -> Ring:
    """Three incidents: released on a, open on b, open on c."""
    ring = Ring(KubeClient.from_kubeconfig(config), "nodeguard")
    ring.put(incident("i2", "b", at=10.0, stamps={"detected": 10.0}, reason="1 pods do not leave: training/x",
                      state="stuck", rules=("gpu-lost",)))
    ring.put(incident("i1", "a", at=0.0, outcome="released", action="reset_gpu", rules=("gpu-hot", "gpu-lost"), stamps={
        "detected": 0.0, "suspended": 0.0421, "evicted": 0.5, "job-backoff": 0.05, "bound": 9.81, "running": 75.0,
        "released": 7200.0}, owners={"u": "Job training/llm"}))
    waited = ((BEGAN, "no spare seats for Job training/llm"),)
    ring.put(incident("i3", "c", at=20.0, state="quarantined", waited=waited))
    ring.write()
    return ring


def incident(identity: str, node: str, *, at: float, stamps: dict[str, float] | None = None,
             **more: object) -> Incident:
    """An entry; times count from :data:`BEGAN`."""
    moments = {phase: BEGAN + seconds for phase, seconds in (stamps or {}).items()}
    return Incident(id=identity, machine=f"sim://{node}", node=node, begun=BEGAN + at, changed=BEGAN + at,
                    stamps=moments, **more)  # type: ignore[arg-type] # by name


def test_a_table_tells_the_way_from_fault_to_release(incidents: Callable[..., str], ring: Ring) -> None:
    """Oldest first, times since the fault was detected; below it, what the open ones wait for."""
    head, first, second, third, *below = incidents().splitlines()
    assert head.split() == ["DETECTED", "INCIDENT", "NODE", "RULES", "ACTION", "STATE", "MOVED", "BOUND", "RUNNING",
                            "REPAIRED", "RELEASED", "OWNERS"]
    assert first.split() == ["2023-11-14T22:13:20.000Z", "i1", "a", "gpu-hot,gpu-lost", "reset_gpu", "released",
                             "+0.042s", "+9.810s", "(back-off)", "+1.2m", "-", "+2.0h", "Job", "training/llm"]
    assert second.split()[1:6] == ["i2", "b", "gpu-lost", "none", "stuck"]
    assert third.split()[1:3] == ["i3", "c"]
    assert below == ["b: 1 pods do not leave: training/x", "c: waits: no spare seats for Job training/llm"]


def test_only_one_node_or_only_open_ones(incidents: Callable[..., str], ring: Ring) -> None:
    """Both together, too."""
    def found(*words: str) -> list[str]:
        return [one["id"] for one in json.loads(incidents(*words, "-o", "json"))]

    assert found() == ["i1", "i2", "i3"]
    assert found("--node", "a") == ["i1"]
    assert found("--open") == ["i2", "i3"]
    assert found("--open", "--node", "a") == []
    assert incidents("--node", "nobody") == "no incidents\n"


def test_json_and_yaml_say_the_same(incidents: Callable[..., str], ring: Ring) -> None:
    """The whole decision record."""
    told = json.loads(incidents("-o", "json"))
    assert load_yaml(incidents("-o", "yaml"), "stdout").single("stdout").plain() == told
    assert told[0]["stamps"]["suspended"] == "2023-11-14T22:13:20.042Z"
    assert told[0]["machine"] == "sim://a"


def test_a_cluster_without_incidents_says_so(incidents: Callable[..., str]) -> None:
    """No ConfigMap is no failure."""
    assert incidents() == "no incidents\n"
    assert incidents("-o", "json") == "[]\n"
    assert incidents("-o", "yaml") == "[]\n"
