"""``nodeguard demo``: every scenario ends with what it promises, and however it ends it leaves nothing behind."""

import multiprocessing
import os
import signal
import subprocess  # noqa: TID251 # Ctrl-C reaches every process in front of a terminal, so the command must be one
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeguard.__main__ import main
from nodeguard.cli.demo import SCENARIO_NAMES
from nodeguard.kube.client import KubeClient
from nodeguard.sim.apiserver import EmbeddedApiServer
from nodeguard.sim.cluster import SimulatedControllers
from nodeguard.sim.scenarios import SCENARIOS

OURS = "nodeguard-demo-"
MOVED = ("the loop takes a budget slot and marks the node", "the gang is suspended", "the old pods are gone",
         "the gang is resumed", "every rank is bound to a healthy node", "every rank runs: rank 0 on",
         "verified: the node is released")
STORM = ("condition GpuLost=True on all 30", "the loop: storm,", "the budget is 3 (10 % of 33)",
         "recoveries go on during the storm", "nothing is replayed", "the training was not touched")


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """The command in a session of its own, with temporary files in ``folder``."""
    with subprocess.Popen(
            [sys.executable, "-m", "nodeguard", "demo", *arguments], env={**os.environ, "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def in_session(session: int) -> list[str]:
    """Processes that still run in this session: their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def gone_in_time(session: int) -> bool:
    """Whether every process of the session ends; helpers notice the end of their parent a moment later."""
    calm = threading.Event()
    for _ in range(100):
        if not in_session(session):
            return True
        calm.wait(0.05)
    return False


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[EmbeddedApiServer, Path]]:
    """Something that looks like a cluster to ``--kubeconfig``, and its kubeconfig."""
    with EmbeddedApiServer() as server:
        kubeconfig = folder / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        with SimulatedControllers(KubeClient.from_kubeconfig(kubeconfig)):
            yield server, kubeconfig


def left_in(server: EmbeddedApiServer) -> list[str]:
    """The demo's objects that are left, but for what goes with its namespace in a real cluster."""
    with_the_namespace = ("leases", "configmaps", "serviceaccounts", "events")
    return [path for path in server.objects if OURS in path
            and not (f"/namespaces/{OURS}" in path and path.split("/")[-2] in with_the_namespace)]


def words_of(name: str) -> tuple[str, ...]:
    """What the timeline of a scenario must say."""
    if name not in SCENARIOS:
        return STORM
    scenario = SCENARIOS[name]
    told = (f"condition {scenario.condition}=True", f"with effect {scenario.effect}", "the other 2 nodes stay clean",
            "Job training runs: rank 0 on", scenario.note, scenario.mend_title)
    return (*told, *(MOVED if scenario.effect == "evict" else ("nobody is evicted, the loop does nothing",)))


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.parametrize("name", SCENARIO_NAMES)
def test_a_scenario_runs_to_its_end(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything that the scenario promises is seen, nothing else is, and no process or thread is left."""
    before = set(threading.enumerate())
    assert main(["demo", "--scenario", name]) == 0
    printed, wrong = capsys.readouterr()
    assert [words for words in words_of(name) if words not in printed] == []
    assert wrong == ""
    if name in SCENARIOS:
        scenario = SCENARIOS[name]
        assert ("taint nodeguard.io/unhealthy:NoSchedule" in printed) == scenario.taint
        assert ("taint removed" in printed) == (scenario.taint and scenario.mend is not None)
        assert ("suspended" in printed) == (scenario.effect == "evict")
    assert multiprocessing.active_children() == []
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(5.0)
    assert not [thread for thread in left if thread.is_alive()]


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("line", "number"), [
    ("cluster of", signal.SIGINT), ("started and judged", signal.SIGTERM), ("gang is suspended", signal.SIGINT),
    ("mended:", signal.SIGTERM)])
def test_ctrl_c_leaves_nothing(line: str, number: signal.Signals, tmp_path: Path) -> None:
    """Exit code 128 + signal, no word on stderr; no process, no directory and no object in the cluster is left.

    The signal goes to every process of the group, as a terminal sends it, and twice, as people do.
    """
    with cluster(tmp_path) as (server, kubeconfig):
        folder = tmp_path / "tmp"
        folder.mkdir()
        with demo(folder, "--kubeconfig", str(kubeconfig), "--scenario", "xid79") as process:
            assert process.stdout is not None
            assert any(line in told for told in iter(process.stdout.readline, ""))
            os.killpg(process.pid, number)
            os.killpg(process.pid, number)
            _, wrong = process.communicate(timeout=20)
        assert (process.returncode, wrong) == (128 + number, "")
        assert gone_in_time(process.pid), in_session(process.pid)
        assert list(folder.iterdir()) == []
        assert left_in(server) == []


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_killed_demo_takes_its_nodes_along(tmp_path: Path) -> None:
    """SIGKILL leaves nothing to tidy up with, and yet no process stays."""
    with demo(tmp_path) as process:
        assert process.stdout is not None
        assert any("breaks:" in told for told in iter(process.stdout.readline, ""))
        process.kill()
        process.communicate(timeout=10)
    assert gone_in_time(process.pid), in_session(process.pid)


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", ["namespaces", "nodes", "jobs"])
def test_an_api_server_that_refuses(what: str, tmp_path: Path) -> None:
    """One plain line that says what was refused and whom to ask, exit 1; nothing is left."""
    with cluster(tmp_path) as (server, kubeconfig):
        folder = tmp_path / "tmp"
        folder.mkdir()
        prefix = {"jobs": "/apis/batch/v1", "nodes": "/api/v1/nodes", "namespaces": "/api/v1/namespaces"}[what]
        server.fail_next(method="POST", path_prefix=prefix, status=403)
        with demo(folder, "--kubeconfig", str(kubeconfig)) as process:
            _, wrong = process.communicate(timeout=20)
        assert process.returncode == 1
        assert wrong.startswith("nodeguard: the cluster refuses what the demo needs, POST ")
        assert "administrator" in wrong
        assert len(wrong.splitlines()) == 1
        assert gone_in_time(process.pid), in_session(process.pid)
        assert list(folder.iterdir()) == []
        assert left_in(server) == []


def test_no_storm_beside_a_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A loop that runs in the cluster would stand still for it: exit 2, and what to do instead."""
    with EmbeddedApiServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        server.create("/apis/coordination.k8s.io/v1/namespaces/nodeguard/leases", {
            "metadata": {"name": "nodeguard-remediate"}, "spec": {"holderIdentity": "replica-1"}})
        assert main(["demo", "--scenario", "storm", "--kubeconfig", str(tmp_path / "kubeconfig")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "nodeguard remediate runs in this cluster" in line
    assert "leave --kubeconfig out" in line


def test_a_missing_kubeconfig_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 with the file's name, before anything is started."""
    assert main(["demo", "--kubeconfig", str(tmp_path / "none")]) == 2
    out, wrong = capsys.readouterr()
    assert (out, wrong.splitlines()) == ("", [
        f"nodeguard: {tmp_path}/none: cannot read this kubeconfig: No such file or directory; give another file"])


def test_an_unknown_scenario_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 and the valid words."""
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--scenario", "fire"])
    assert caught.value.code == 2
    assert "xid79" in capsys.readouterr().err
