"""A ConfigMap's mount, changed as the kubelet changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def swap(directory: Path, generation: int, text: str) -> None:
    """A new directory with the new content, and the link ``..data`` swapped to it at once (atomic_writer.go)."""
    new = directory / f"..generation-{generation}"
    new.mkdir()
    (new / "rules.yaml").write_text(text)
    link = directory / "..data_tmp"
    link.symlink_to(new.name)
    link.replace(directory / "..data")
    name = directory / "rules.yaml"
    if not name.is_symlink():
        name.symlink_to("..data/rules.yaml")


def overrides(body: str) -> str:
    """A file of overrides."""
    return f"apiVersion: nodeguard.io/v1\nkind: Overrides\nmetadata: {{name: mine}}\noverrides:\n{body}"
