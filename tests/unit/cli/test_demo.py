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
from nodeguard.sim.apiserver import EmbeddedApiServer
from nodeguard.sim.scenarios import SCENARIOS

NODES = "/api/v1/nodes/"


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


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_runs_to_its_end(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The condition, the annotation and the taint are seen, the others stay clean, and nothing is left."""
    before = set(threading.enumerate())
    assert main(["demo", "--scenario", name]) == 0
    printed = capsys.readouterr().out
    scenario = SCENARIOS[name]
    assert f"condition {scenario.condition}=True" in printed
    assert ("taint nodeguard.io/unhealthy:NoSchedule" in printed) == scenario.taint
    assert "the other 2 nodes stay clean" in printed
    assert ("taint removed" in printed) == (scenario.mend is not None)
    assert multiprocessing.active_children() == []
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(5.0)
    assert not [thread for thread in left if thread.is_alive()]


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("line", ["cluster of", "started and judged", "breaks:"])
def test_ctrl_c_leaves_nothing(line: str, number: signal.Signals, tmp_path: Path) -> None:
    """Exit code 128 + signal, no word on stderr; no process, no directory and no Node object is left.

    The signal goes to every process of the group, as a terminal sends it, and twice, as people do.
    """
    with EmbeddedApiServer() as server:
        folder = tmp_path / "tmp"
        folder.mkdir()
        server.write_kubeconfig(tmp_path / "kubeconfig")
        with demo(folder, "--kubeconfig", str(tmp_path / "kubeconfig"), "--scenario", "hang") as process:
            assert process.stdout is not None
            assert any(line in told for told in iter(process.stdout.readline, ""))
            os.killpg(process.pid, number)
            os.killpg(process.pid, number)
            _, wrong = process.communicate(timeout=20)
        assert (process.returncode, wrong) == (128 + number, "")
        assert gone_in_time(process.pid), in_session(process.pid)
        assert list(folder.iterdir()) == []
        assert [path for path in server.objects if path.startswith(NODES)] == []


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
def test_an_api_server_that_refuses(tmp_path: Path) -> None:
    """One plain line and exit 1; nothing is left."""
    with EmbeddedApiServer() as server:
        folder = tmp_path / "tmp"
        folder.mkdir()
        server.write_kubeconfig(tmp_path / "kubeconfig")
        server.fail_next(method="POST", path_prefix="/api/v1/nodes", status=403)
        with demo(folder, "--kubeconfig", str(tmp_path / "kubeconfig")) as process:
            _, wrong = process.communicate(timeout=20)
        assert process.returncode == 1
        assert wrong.startswith("nodeguard: ")
        assert len(wrong.splitlines()) == 1
        assert gone_in_time(process.pid), in_session(process.pid)
        assert list(folder.iterdir()) == []


def test_an_unknown_scenario_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 and the valid words."""
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--scenario", "fire"])
    assert caught.value.code == 2
    assert "xid79" in capsys.readouterr().err
