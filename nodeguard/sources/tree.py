"""A tree of small text files, such as ``/sys``: the live one, or the one that a recording tells."""

from pathlib import Path
from typing import Protocol

LONGEST_FILE = 64 << 10
"""Bytes read of one file; what sysfs tells in one is at most a page."""


class Tree(Protocol):
    """Paths are relative to the root, with ``/`` between names. Everything that fails raises OSError with an errno."""

    def read(self, path: str) -> str:
        """The file's text without white space at its ends."""
        ...

    def names(self, path: str) -> tuple[str, ...]:
        """Names in the directory, sorted."""
        ...

    def link(self, path: str) -> str:
        """Where the symbolic link points, as it is written there."""
        ...

    def exists(self, path: str) -> bool:
        """Whether something is there; a link counts even when its target is missing."""
        ...


class DirectoryTree:
    """A directory of this machine as a :class:`Tree`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str) -> str:
        """See :class:`Tree`."""
        with (self._root / path).open("rb") as file:
            return file.read(LONGEST_FILE).decode("utf-8", "replace").strip()

    def names(self, path: str) -> tuple[str, ...]:
        """See :class:`Tree`."""
        return tuple(sorted(one.name for one in (self._root / path).iterdir()))

    def link(self, path: str) -> str:
        """See :class:`Tree`."""
        return str((self._root / path).readlink())

    def exists(self, path: str) -> bool:
        """See :class:`Tree`."""
        file = self._root / path
        return file.is_symlink() or file.exists()
