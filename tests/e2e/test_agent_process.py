"""The agent as a process: signals, exit codes, sentences for people, rights, imports and memory."""

from __future__ import annotations

import signal
import subprocess  # noqa: TID251  # asks a fresh interpreter what it imported
import sys
import time
from typing import TYPE_CHECKING

import pytest

from .agent_nodes import NodeStates, events_of, own_taints, status
from .agents import FULL, ROOT, TIMEOUT_WORDS, AgentProcess, Rig, eventually, http_status, keep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .controlplane.admin import Admin
    from .controlplane.cluster import Cluster
    from .controlplane.kubelet import FakeKubelet
    from .controlplane.proxy import FaultProxy

MIB = 1 << 20
BUDGET = 60 * MIB
IDLE = 20.0 if FULL else 6.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_with_its_state_saved(
    control_plane: Cluster, admin: Admin, kubelet: FakeKubelet, number: signal.Signals
) -> None:
    """SIGTERM and Ctrl-C: exit 0 within 2 s, the fault is in the state file, no traceback."""
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        agent = rig.start()
        rig.wait_ready()
        rig.hardware.log.xid(rig.hardware.slots[0], 109, TIMEOUT_WORDS)
        states.wait_now(own_taints, "the taint")
        began = time.monotonic()
        agent.signal(number)
        assert agent.wait(2.0) == 0
        keep(f"end-{number.name}.txt", f"{number.name}: ended after {time.monotonic() - began:.2f} s\n")
        assert [fault["rule"] for fault in rig.faults()] == ["gpu-xid-context-switch-timeout"]
        assert "Traceback" not in agent.output()
        assert own_taints(states.newest)


@pytest.mark.parametrize("mode", ["hang", "refuse"])
def test_signal_while_the_api_server_does_not_answer(
    control_plane: Cluster, kubelet: FakeKubelet, proxy: FaultProxy, mode: str
) -> None:
    """Neither a request under way nor a start without an answer holds the end up."""
    config = control_plane.kubeconfig_for_token(control_plane.admin_token(), server=proxy.url, ca=proxy.ca)
    with Rig(kubelet.name, config) as rig:
        proxy.mode = mode
        agent = rig.start()
        agent.wait_said('"agent started"')
        rig.hardware.log.xid(rig.hardware.slots[0], 109, TIMEOUT_WORDS)
        agent.wait_said("gpu-xid-context-switch-timeout")
        assert agent.end(2.0) < 2.0


def test_signal_in_the_middle_of_the_start(control_plane: Cluster, kubelet: FakeKubelet, proxy: FaultProxy) -> None:
    """While it waits for the API server's first answer it ends at once, with 0."""
    config = control_plane.kubeconfig_for_token(control_plane.admin_token(), server=proxy.url, ca=proxy.ca)
    with Rig(kubelet.name, config) as rig:
        proxy.mode = "hang"
        agent = rig.start()
        eventually((rig.hardware.state_dir / "lock").exists, "it has begun")
        assert agent.end(2.0) < 2.0
        assert agent.output() == ""


def _without(flag: str) -> Callable[[list[str]], list[str]]:
    def change(words: list[str]) -> list[str]:
        place = words.index(flag)
        return words[:place] + words[place + 2:]

    return change


def _with(flag: str, value: str) -> Callable[[list[str]], list[str]]:
    return lambda words: [*words, flag, value]


WRONG = {
    "no node name": (_without("--node-name"), "--node-name: the node's name is needed"),
    "no kubeconfig": (_with("--kubeconfig", "{tmp}/none"), "cannot read this kubeconfig: No such file"),
    "bad kubeconfig": (_with("--kubeconfig", "{tmp}/bad"), "not a usable kubeconfig"),
    "not yaml": (_with("--kubeconfig", "{tmp}/garbage"), "not a usable kubeconfig"),
    "no cluster": (_without("--kubeconfig"), "no cluster: give --kubeconfig FILE"),
    "no rules": (_with("--rules", "{tmp}/none"), "{tmp}/none"),
    "bad rules": (_with("--rules", "{tmp}/rules"), "{tmp}/rules/bad.yaml:6:"),
    "no proc": (_with("--proc-root", "{tmp}/none"), "cannot read the boot ID"),
    "bad address": (_with("--listen", "here"), "--listen: must be ADDR:PORT"),
    "bad level": (_with("--log-level", "loud"), "--log-level: unknown level"),
    "bad duration": (_with("--soak", "a while"), "--soak: "),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_setting(mistake: str, control_plane: Cluster, node: str, tmp_path: Path) -> None:
    """Exit 2 and one plain line that says what and where."""
    change, sentence = WRONG[mistake]
    (tmp_path / "bad").write_text("apiVersion: v1\nkind: Config\ncurrent-context: nowhere\n")
    (tmp_path / "garbage").write_bytes(b"\x00{[}")
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/bad.yaml").write_text(
        "apiVersion: nodeguard.io/v1\nkind: RuleSet\nmetadata: {name: bad}\nrules:\n- name: a\n  signal: gpu_xidd\n"
        "  severity: info\n  action: none\n  effect: event\n  clear: {after: 1m}\n  message: m\n")
    sentence = sentence.replace("{tmp}", str(tmp_path))
    with Rig(node, control_plane.kubeconfig) as rig:
        words = [word.replace("{tmp}", str(tmp_path)) for word in change(rig.arguments())]
        with AgentProcess(*words, log=rig.log) as agent:
            assert agent.wait() == 2, agent.output()
            (line,) = agent.output().splitlines()
    assert line.startswith("nodeguard: ")
    assert sentence in line


def test_two_agents(control_plane: Cluster, kubelet: FakeKubelet) -> None:
    """A second one with the same state directory, or the same port, ends with 2 and says who has it."""
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, Rig(kubelet.name, control_plane.kubeconfig) as other:
        first = rig.start()
        rig.wait_ready()
        for changed, sentence in (("--state-dir", f"in use by another agent, pid {first.pid}"),
                                  ("--listen", "cannot listen on")):
            words = other.arguments()
            place = words.index(changed) + 1
            words[place] = rig.arguments()[place]
            with AgentProcess(*words, log=other.log) as second:
                assert second.wait() == 2
                (line,) = second.output().splitlines()
                assert sentence in line
        assert first.running()


def test_rights_are_missing(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet, namespace: str) -> None:
    """It says what it may not do, in the server's words, goes on, and writes once it may."""
    config = control_plane.kubeconfig_for_token(control_plane.token(namespace, "default"))
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    with Rig(kubelet.name, config) as rig, NodeStates(admin, rig.node) as states:
        agent = rig.start()
        agent.wait_said('"agent started"')
        agent.wait_said("cannot get resource")
        rig.hardware.log.xid(rig.hardware.slots[0], 109, TIMEOUT_WORDS)
        agent.wait_said("gpu-xid-context-switch-timeout")
        assert http_status(rig.port, "/healthz") == 200
        binding = {
            "metadata": {"name": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": "default"}],
        }
        admin.create(roles, binding)
        try:
            states.wait_now(own_taints, "the taint, once it may", 30)
        finally:
            admin.delete(f"{roles}/{namespace}")
        assert "Traceback" not in agent.output()


def test_unwritable_state_directory(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """While the state cannot be saved, the Node says that nodeguard is impaired; faults are told all the same."""
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        changes = rig.hardware.root / "overrides"
        changes.mkdir()
        (changes / "soon.yaml").write_text(
            "apiVersion: nodeguard.io/v1\nkind: Overrides\nmetadata: {name: soon}\noverrides:\n"
            "  nodeguard-state-unwritable: {for: 1s}\n")
        rig.start("--overrides", str(changes))
        rig.wait_ready()
        in_the_way = rig.refuse_state()
        rig.hardware.log.xid(rig.hardware.slots[0], 109, TIMEOUT_WORDS)
        states.wait_now(own_taints, "the taint")
        states.wait_now(lambda node: status(node, "NodeguardDegraded") == "True", "nodeguard is impaired", 25)
        in_the_way.rmdir()
        states.wait_now(lambda node: status(node, "NodeguardDegraded") == "False", "nodeguard is well again", 25)
        eventually(lambda: {"NodeguardStateUnwritable", "NodeguardStateUnwritableCleared"} <= {
            one["reason"] for one in events_of(admin, rig.node)}, "both are Events")


UNWANTED = ("kubernetes.client.models.", "kubernetes.client.api.", "aiohttp", "rich", "hypothesis", "pytest", "grpc",
            "oauthlib", "requests", "nodeguard.sim")


def test_what_it_does_not_import() -> None:
    """Memory that no node needs to give: typed API classes, and what happens to be installed."""
    code = "import sys, nodeguard.cli.agent; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "nodeguard.app.agent" in loaded
    assert not [name for name in loaded if f"{name}.".startswith(UNWANTED) and name != "kubernetes.client.models"]


@pytest.mark.slow
def test_resident_memory(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """With every shipped rule, eight GPUs and faults on all of them, after a while."""
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        agent = rig.start()
        rig.wait_ready()
        began = time.monotonic()
        for slot, gpu in zip(rig.hardware.slots, rig.hardware.uuids, strict=True):
            rig.hardware.log.write(f"NVRM: GPU at PCI:{slot.removesuffix('.0')}: {gpu}")
            rig.hardware.log.xid(slot, 109, TIMEOUT_WORDS)
            rig.hardware.log.xid(slot, 43, "pid=5, name=python3, Ch 00000008")
        states.wait_now(own_taints, "the taint")
        largest = 0

        def over() -> bool:
            nonlocal largest
            rig.metrics()
            largest = max(largest, agent.rss())
            time.sleep(0.5)
            return time.monotonic() - began > IDLE

        eventually(over, "time passes", 25)
        keep("memory.txt", f"RSS after {IDLE:.0f} s: {agent.rss() / MIB:.1f} MiB, at most {largest / MIB:.1f} MiB\n")
        assert largest < BUDGET
