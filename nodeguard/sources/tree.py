"""A tree of small text files, such as ``/sys``: the live one, or the one that a recording tells."""

import os
from pathlib import Path
from typing import Protocol

LONGEST_FILE = 64 << 10
"""Bytes read of one file; what sysfs tells in one is at most a page."""

_LONGEST_COUNT = 20
"""Digits of the greatest number of 64 bits."""


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
        self._below = f"{root}/"

    def read(self, path: str) -> str:
        """See :class:`Tree`."""
        # plain system calls: dozens of files a second, and a file object costs three times as much
        file = os.open(self._below + path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(file, LONGEST_FILE).decode("utf-8", "replace").strip()
        finally:
            os.close(file)

    def names(self, path: str) -> tuple[str, ...]:
        """See :class:`Tree`."""
        return tuple(sorted(os.listdir(self._below + path)))  # noqa: PTH208 # no path object for each name

    def link(self, path: str) -> str:
        """See :class:`Tree`."""
        return str((self._root / path).readlink())

    def exists(self, path: str) -> bool:
        """See :class:`Tree`."""
        file = self._root / path
        return file.is_symlink() or file.exists()


def text_of(tree: Tree, path: str) -> str:
    """The file's text; empty where it cannot be read."""
    try:
        return tree.read(path)
    except OSError:
        return ""


def count_of(tree: Tree, path: str) -> int | None:
    """The whole number that is all of the file; None for anything else."""
    text = text_of(tree, path)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_COUNT else None


def names_of(tree: Tree, path: str) -> tuple[str, ...]:
    """Names in the directory; none where it cannot be read."""
    try:
        return tree.names(path)
    except OSError:
        return ()
