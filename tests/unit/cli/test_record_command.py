"""``nodeguard record`` from the command line."""

import json
import signal
import subprocess  # noqa: TID251 # a test starts programs
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeguard.__main__ import main
from nodeguard.sim.node import SimulatedNode


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with SimulatedNode("gpu-1", 0) as node:
        yield node


def command(node: SimulatedNode, output: Path, *more: str) -> list[str]:
    """What a person types."""
    flags = [word for name in ("kmsg", "proc_root", "sys_root")
             for word in ("--" + name.replace("_", "-"), node.settings[name])]
    return [sys.executable, "-m", "nodeguard", "record", "--output", str(output), "--no-host", *flags, *more]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_whole_file(node: SimulatedNode, tmp_path: Path, number: signal.Signals,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0; the file is replayed to what happened meanwhile."""
    file = tmp_path / "night.jsonl"
    with subprocess.Popen(command(node, file), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "agent started" in process.stderr.readline()
        node.log.xid("0000:3b:00.0", 95, "Uncontained")
        assert "gpu-xid-uncontained-ecc" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(timeout=10) == 0
    assert "until" in json.loads(file.read_text().splitlines()[-1])
    assert main(["replay", str(file)]) == 0
    assert "opened   critical  evict       gpu-xid-uncontained-ecc" in capsys.readouterr().out


@pytest.mark.slow
def test_it_ends_by_itself(node: SimulatedNode, tmp_path: Path) -> None:
    """After ``--for``."""
    file = tmp_path / "night.jsonl"
    subprocess.run(command(node, file, "--for", "500ms"), check=True, timeout=15, capture_output=True)
    first, *_, last = map(json.loads, file.read_text().splitlines())
    assert "recorded" in first
    assert 0.4 < last["until"] - first["at"] < 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output", "night.yaml"], "call it night.jsonl"),
        (["--output", "/nowhere/night.jsonl"], "cannot write the recording"),
        (["--output", "night.jsonl", "--for", "10"], "--for must be a length of time"),
        (["--output", "night.jsonl", "--max-size", "0"], "--max-size must be 1 or more"),
    ],
)
def test_a_users_mistake_is_one_plain_line(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    """Exit 2, before anything is read."""
    assert main(["record", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
