"""``nodeguard cleanup`` against the embedded API server."""

import argparse
import json
import os
import pty
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeguard.cli.cleanup import add_arguments
from nodeguard.kube import brake
from nodeguard.kube.client import KubeClient
from nodeguard.model.errors import ApiNotFound, UserError

NODE = "/api/v1/nodes/a"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def api(config: Path) -> KubeClient:
    """The same server, with a marked Node and a brake."""
    api = KubeClient.from_kubeconfig(config)
    document = json.dumps({"v": 1, "faults": [], "types": ["GpuLost"]})
    api.post("/api/v1/nodes", {"metadata": {"name": "a", "annotations": {"nodeguard.io/faults": document}}})
    brake.write(api, "nodeguard", brake.entry(None, brake.Hold()))
    return api


@pytest.fixture
def cleanup(config: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command: exit code, what it printed, what it complained of."""
    def run(*words: str) -> tuple[int, str, str]:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        args = parser.parse_args([*words, "--kubeconfig", str(config)])
        code = int(args.run(args))
        return code, *capsys.readouterr()
    return run


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A terminal as standard input, and what somebody types there."""
    person, terminal = pty.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)

        def write(text: str) -> None:
            os.write(person, text.encode())

        yield write
    os.close(person)


def test_a_dry_run_removes_nothing(cleanup: Command, api: KubeClient) -> None:
    """And names every mark."""
    code, out, _ = cleanup("--dry-run")
    assert code == 0
    assert out.splitlines() == [
        "would clean up Node a: annotations nodeguard.io/faults",
        "would clean up ConfigMap nodeguard/nodeguard-brake: all of it", "in all 1 Node and 1 ConfigMap"]
    assert "nodeguard.io/faults" in api.get(NODE)["metadata"]["annotations"]


def test_yes_removes_and_a_second_time_there_is_nothing(cleanup: Command, api: KubeClient) -> None:
    """What was done is printed."""
    code, out, _ = cleanup("--yes")
    assert (code, out.splitlines()[-1]) == (0, "in all 1 Node and 1 ConfigMap")
    assert not api.get(NODE)["metadata"].get("annotations")
    with pytest.raises(ApiNotFound):
        api.get(brake.path("nodeguard"))
    assert cleanup("--yes") == (0, "no mark of nodeguard is in this cluster\n", "")


def test_without_a_terminal_a_yes_is_needed(cleanup: Command, api: KubeClient) -> None:
    """A script must say that it means it."""
    with pytest.raises(UserError, match=r"give --yes to clean up 1 Node and 1 ConfigMap, or --dry-run"):
        cleanup()
    assert "nodeguard.io/faults" in api.get(NODE)["metadata"]["annotations"]


@pytest.mark.parametrize(("answer", "done"), [("y\n", True), ("\n", False), ("no\n", False)])
def test_a_person_is_asked(cleanup: Command, api: KubeClient, typed: Callable[[str], None], answer: str,
                           *, done: bool) -> None:
    """Only a plain yes is one."""
    typed(answer)
    code, out, _ = cleanup()
    assert code == 0
    assert out.splitlines()[-1].endswith("in all 1 Node and 1 ConfigMap" if done else "nothing was removed")
    assert bool(api.get(NODE)["metadata"].get("annotations")) is not done
