"""C53: rule files that change under the agent, or are bad, or are not there."""

import threading
from io import StringIO
from pathlib import Path

import pytest

from nodeguard.__main__ import main
from nodeguard.app.rulesource import RuleSource
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.model.errors import ConfigError
from nodeguard.sim.node import SimulatedNode
from nodeguard.sinks.log import configure

GOOD = (
    "apiVersion: nodeguard.io/v1\nkind: RuleSet\nrules:\n- {name: one, signal: gpu_temperature_celsius, above: 90, "
    "severity: warning, action: none, effect: event}\n")
BAD = GOOD.replace("severity", "severty")


class Mount:
    """A ConfigMap as the kubelet mounts it, and the rules that an agent takes from it."""

    def __init__(self, root: Path, text: str = GOOD) -> None:
        self._root, self._version = root / "rules", 0
        self._root.mkdir()
        self.swap(text)
        self.log = StringIO()
        settings = resolve_agent_settings({"node_name": "gpu-1", "rules": str(self._root)}, {})
        self.source = RuleSource(settings, configure("info", self.log))

    def swap(self, text: str) -> None:
        self._version += 1
        version = self._root / f"..2026_01_{self._version:02}"
        version.mkdir()
        (version / "rules.yaml").write_text(text)
        (self._root / "..data_tmp").symlink_to(version.name)
        (self._root / "..data_tmp").replace(self._root / "..data")
        if self._version == 1:
            (self._root / "rules.yaml").symlink_to("..data/rules.yaml")


def test_c53a_a_swap_is_in_force_at_the_next_look(tmp_path: Path) -> None:
    """A look a second: another number, and files of the same size."""
    mount = Mount(tmp_path)
    before = mount.source.load({})
    assert mount.source.poll(1.0) is None
    mount.swap(GOOD.replace("above: 90", "above: 91"))
    found = mount.source.poll(2.0)
    assert found is not None
    assert found.hash != before.hash


def test_c53b_bad_content_leaves_the_last_good_rules_in_force(tmp_path: Path) -> None:
    """Said once in the log with the place, and shown as long as it is so; the good content ends it."""
    mount = Mount(tmp_path)
    good = mount.source.load({})
    mount.swap(BAD)
    found = mount.source.poll(1.0)
    assert found is not None
    assert found.hash == good.hash
    assert "rules.yaml:4:" in mount.source.invalid
    assert "unknown key 'severty'" in mount.source.invalid
    assert mount.source.poll(2.0) is None
    assert mount.log.getvalue().count("rules refused") == 1
    mount.swap(GOOD)
    assert mount.source.poll(3.0) is not None
    assert mount.source.invalid == ""


def test_c53b_no_agent_starts_with_bad_rules(tmp_path: Path) -> None:
    """Never with defaults instead."""
    with pytest.raises(ConfigError, match="severty"):
        Mount(tmp_path, BAD).source.load({})


@pytest.mark.parametrize(("text", "said"), [(BAD, "rules.yaml:4:"), (None, "rules")])
def test_c53bc_the_command_ends_with_2(
    text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad rules, or none where they should be: a plain line a mistake, and no agent."""
    folder = tmp_path / "rules"
    if text is not None:
        folder.mkdir()
        (folder / "rules.yaml").write_text(text)
    threads = threading.active_count()
    with SimulatedNode("gpu-1", 1) as node:
        words = [word for name, value in node.settings.items() for word in (f"--{name.replace('_', '-')}", value)]
        assert main(["agent", "--no-kube", *words, "--rules", str(folder)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert threading.active_count() == threads
