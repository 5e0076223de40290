"""Processes that end when they should, and a build that says what it lacks. No cluster."""

from __future__ import annotations

import re
import subprocess  # noqa: TID251  # a test run to be killed
import sys
import threading
import time
from pathlib import Path

import pytest

from .controlplane import build
from .controlplane.errors import ControlPlaneError, ControlPlaneUnavailable
from .controlplane.process import Component, Reaper


def _running(pid: int) -> bool:
    """Alive and no zombie that only waits for whoever adopts it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def test_killed_test_run_leaves_nothing_behind() -> None:
    """Components of a process that is killed are ended by the reaper."""
    program = (
        "import pathlib, sys, time\n"
        "from controlplane.process import Component, Reaper\n"
        "one = Component('sleep', ['sleep', '600'], pathlib.Path('/dev/null'), Reaper())\n"
        "print(one.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert _running(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 10
    while _running(child) and time.monotonic() < end:
        threading.Event().wait(0.02)
    assert not _running(child)


def test_component_that_dies_shows_its_log(tmp_path: Path) -> None:
    """The error of a component that ended at start carries the end of its log."""
    reaper = Reaper()
    command = [sys.executable, "-c", "import sys; sys.exit('no such flag')"]
    broken = Component("broken", command, tmp_path / "log", reaper)
    end = time.monotonic() + 10
    while _running(broken.pid) and time.monotonic() < end:
        threading.Event().wait(0.01)
    with pytest.raises(ControlPlaneError, match="no such flag"):
        broken.check_alive()
    broken.stop()
    reaper.close()


def test_without_go_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without Go gets one plain line, not a traceback."""
    monkeypatch.setenv(build.CACHE_ENV, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ControlPlaneUnavailable) as refused:
        build.ensure_binaries()
    assert "\n" not in str(refused.value)
    assert "NODEGUARD_E2E_KUBECONFIG" in str(refused.value)


def test_pins_agree() -> None:
    """Kubernetes v1.x.y goes with v0.x.y of every module it replaces."""
    version = build.kubernetes_version()
    text = (build.MODULE_DIR / "go.mod").read_text()
    replaced = re.findall(r"^\s*(?:replace )?k8s\.io/\S+ => k8s\.io/\S+ (v\S+)$", text, re.MULTILINE)
    assert set(replaced) == {version.replace("v1.", "v0.")}


def test_two_builders_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that find an empty cache at once, one builds and the other takes the result."""
    go = tmp_path / "go"
    go.write_text(_FAKE_GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv(build.CACHE_ENV, str(tmp_path / "cache"))
    program = "from controlplane.build import main; main()"
    builders = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    printed = "".join(one.communicate(timeout=60)[0] for one in builders)
    assert printed.count("built etcd") == 1
    assert printed.count("ready: ") == 2
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == [
        build.cache_dir().name
    ]


_FAKE_GO = """#!/bin/sh
case "$1" in
env) echo go1.99.0 ;;
build) while [ "$1" != -o ]; do shift; done; echo built > "$2"; chmod +x "$2" ;;
esac
"""
