"""Changes of rules on disk are noticed within one poll, whatever they look like from outside (C53)."""

import os
from pathlib import Path

import pytest

from nodeguard.config.reload import Reloader
from nodeguard.config.rules import load_rules
from nodeguard.model.errors import ConfigError
from nodeguard.model.rule import RuleSet

TEXT = (
    "apiVersion: nodeguard.io/v1\nkind: RuleSet\nrules:\n- {name: one, signal: gpu_temperature_celsius, above: 90, "
    "severity: warning, action: none, effect: event}\n")


class Mount:
    """A ConfigMap as the kubelet mounts it: visible links into ``..data``, which is swapped in one step."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.version = 0

    def publish(self, text: str) -> None:
        self.version += 1
        version = self.root / f"..2026_01_{self.version:02}"
        version.mkdir()
        (version / "rules.yaml").write_text(text)
        os.utime(version / "rules.yaml", (1_700_000_000, 1_700_000_000))
        (self.root / "..data_tmp").symlink_to(version.name)
        (self.root / "..data_tmp").replace(self.root / "..data")
        if not (self.root / "rules.yaml").is_symlink():
            (self.root / "rules.yaml").symlink_to("..data/rules.yaml")


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    mount = Mount(tmp_path)
    mount.publish(TEXT)
    return mount


def reloader(path: Path) -> Reloader[RuleSet]:
    return Reloader(lambda: load_rules([path]), [path])


def test_c53_a_swap_with_same_size_and_time_is_loaded(mount: Mount) -> None:
    """The first poll loads, a quiet one does nothing, one after a swap loads the new content."""
    watch = reloader(mount.root)
    first = watch.poll()
    assert isinstance(first, RuleSet)
    assert watch.poll() is None
    mount.publish(TEXT.replace("above: 90", "above: 91"))
    second = watch.poll()
    assert isinstance(second, RuleSet)
    assert second.hash != first.hash
    assert watch.poll() is None


def test_c53_a_file_in_the_mount_may_be_named(mount: Mount) -> None:
    """A path to the visible file follows the swap as well."""
    watch = reloader(mount.root / "rules.yaml")
    watch.poll()
    mount.publish(TEXT.replace("above: 90", "above: 91"))
    assert isinstance(watch.poll(), RuleSet)


def test_c53_bad_content_is_told_once_and_its_repair_is_loaded(mount: Mount) -> None:
    """The error comes once per content; going back to the old content is news again."""
    watch = reloader(mount.root)
    watch.poll()
    mount.publish(TEXT.replace("severity", "severty"))
    error = watch.poll()
    assert isinstance(error, ConfigError)
    assert "unknown key 'severty'; did you mean 'severity'?" in str(error)
    assert watch.poll() is None
    mount.publish(TEXT)
    assert isinstance(watch.poll(), RuleSet)


def test_a_swap_to_the_same_content_is_no_news(mount: Mount) -> None:
    """The kubelet may write the same data again."""
    watch = reloader(mount.root)
    watch.poll()
    mount.publish(TEXT)
    assert watch.poll() is None


def test_c53_missing_rules_are_an_error_until_they_come(tmp_path: Path) -> None:
    """Never an empty set in silence."""
    watch = reloader(tmp_path / "later")
    assert isinstance(watch.poll(), ConfigError)
    assert watch.poll() is None
    (tmp_path / "later").mkdir()
    assert isinstance(watch.poll(), ConfigError)
    (tmp_path / "later" / "a.yaml").write_text(TEXT)
    assert isinstance(watch.poll(), RuleSet)


def test_a_plain_directory_is_watched_by_content(tmp_path: Path) -> None:
    """An edit in place with the old size and time is noticed; touching a file is not news."""
    file = tmp_path / "a.yaml"
    file.write_text(TEXT)
    watch = reloader(tmp_path)
    watch.poll()
    before = file.stat()
    file.write_text(TEXT.replace("above: 90", "above: 91"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert isinstance(watch.poll(), RuleSet)
    os.utime(file, (1, 1))
    assert watch.poll() is None
    file.unlink()
    assert isinstance(watch.poll(), ConfigError)


def test_a_change_while_loading_is_loaded_again(mount: Mount) -> None:
    """Content read half before and half after a swap never gets into force."""
    loads: list[RuleSet] = []

    def load() -> RuleSet:
        if not loads:
            mount.publish(TEXT.replace("above: 90", "above: 91"))
        loads.append(load_rules([mount.root]))
        return loads[-1]

    watch = Reloader(load, [mount.root])
    assert watch.poll() is loads[1]
    assert watch.poll() is None
