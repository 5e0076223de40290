"""``nodeguard brake`` against the embedded API server."""

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeguard.cli.brake import add_arguments
from nodeguard.kube.brake import entry, fetch, path
from nodeguard.kube.client import KubeClient
from nodeguard.model.errors import UserError

Command = Callable[..., str]


@pytest.fixture
def brake(config: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command, which must succeed; what it printed."""
    def run(*words: str) -> str:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        args = parser.parse_args([*words, "--kubeconfig", str(config)])
        assert args.run(args) == 0
        return capsys.readouterr().out
    return run


def test_on_show_off(brake: Command, config: Path) -> None:
    """Every rule is braked, shown with its reason, and let go."""
    assert brake("show") == "nothing is braked\n"
    assert brake("on", "--reason", "limit  is\nwrong").startswith("braked: every rule;")
    shown = brake("show")
    assert shown.startswith("every rule  20")
    assert shown.endswith(" limit is wrong\n")
    assert fetch(KubeClient.from_kubeconfig(config), "nodeguard").everything is not None
    assert brake("off").startswith("not braked any more: every rule;")
    assert brake("show") == "nothing is braked\n"


def test_rules_are_braked_one_by_one(brake: Command) -> None:
    """Each has its own entry; ending one leaves the others, and says when all are braked anyway."""
    brake("on", "--rule", "gpu-lost", "--rule", "ours")
    brake("on")
    assert [line.split()[0] for line in brake("show").splitlines()] == ["every", "gpu-lost", "ours"]
    assert "every rule is still braked" in brake("off", "--rule", "gpu-lost")
    assert "gpu-lost" not in brake("show")


def test_a_rule_that_is_not_shipped_is_braked_with_a_note(brake: Command) -> None:
    """It may be the operator's own; it may also be misspelt."""
    out = brake("on", "--rule", "gpu-lots")
    assert out.splitlines()[1] == "note: no shipped rule is called 'gpu-lots'; did you mean 'gpu-lost'?"
    assert brake("show").startswith("gpu-lots  ")


def test_off_for_a_rule_that_is_not_braked_is_a_mistake(brake: Command) -> None:
    """It is no success to end what never began."""
    brake("on", "--rule", "gpu-lost")
    with pytest.raises(UserError, match=r"^not braked by name: gpu-lots; did you mean 'gpu-lost'\?$"):
        brake("off", "--rule", "gpu-lots")


def test_the_loop_s_brake_shows_its_hash(brake: Command, config: Path) -> None:
    """A brake of a rule as it was ends when the rule is changed, so the hash is part of the story."""
    brake("on", "--rule", "gpu-lost")
    api = KubeClient.from_kubeconfig(config)
    body = api.get(path("nodeguard"))
    api.put(path("nodeguard"), {**body, "data": {"rule.gpu-lost": "0123456789abcdef now nodeguard-loop 12 nodes"}})
    assert brake("show") == "gpu-lost as of 0123456789abcdef  now nodeguard-loop 12 nodes\n"
    assert entry(None, fetch(api, "nodeguard").rules["gpu-lost"])["all"].startswith("0123456789abcdef ")


def test_off_without_a_config_map_says_so(brake: Command) -> None:
    """As on a new cluster."""
    assert brake("off") == "nothing is braked\n"


@pytest.mark.parametrize("name", ["Gpu-Lost", "gpu.lost", "-gpu", ""])
def test_no_rule_is_called_so(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The ConfigMap could not hold it."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["on", f"--rule={name}"])
    assert "lower case with dashes" in capsys.readouterr().err


def test_no_cluster_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment, no flag."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["show"])
    with pytest.raises(UserError, match="give --kubeconfig FILE"):
        args.run(args)
