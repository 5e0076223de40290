"""The tree below ``/sys`` that a recording tells, patched entry by entry."""

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodeguard.sources.recording import checks
from nodeguard.sources.recording.checks import Report
from nodeguard.sources.tree import Tree

PROC = "proc"
"""Where a recorded agent's polls of ``/sys`` find what they read of ``/proc``; there is no such directory in sysfs."""


@dataclass(frozen=True, slots=True)
class _Broken:
    """A file that is there and cannot be read."""

    number: int


@dataclass(frozen=True, slots=True)
class _Link:
    """A symbolic link; paths below it are given under its own name."""

    target: str


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory that may be empty; one that is not needs no word of its own."""


_Node = str | _Broken | _Link | _Directory


class RecordedTree:
    """A :class:`nodeguard.sources.tree.Tree` made of patches."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._below: dict[str, set[str]] = {}
        """Directory → names in it, for every path on the way to a node."""

    def clear(self) -> None:
        """A reboot: nothing is there."""
        self._nodes.clear()
        self._below.clear()

    def patch(self, entry: Any, report: Report) -> None:
        """Apply one ``sysfs`` entry; what is wrong in it costs that path only."""
        for path, value in checks.mapping(entry, "sysfs", report).items():
            if not isinstance(path, str) or path.startswith("/") or ".." in path.split("/"):
                report(f"a sysfs path is relative and below /sys: {path!r}")
            elif value is None:
                self._remove(path)
            else:
                self._put(path, value, report)

    def _remove(self, path: str) -> None:
        doomed = [path]
        while doomed:
            one = doomed.pop()
            self._nodes.pop(one, None)
            doomed += [f"{one}/{name}" for name in self._below.pop(one, ())]
        self._forget(path)

    def _forget(self, path: str) -> None:
        """Nothing is at ``path``: nor are directories in which nothing else is."""
        while path not in self._nodes and path not in self._below and "/" in path:
            path, _, name = path.rpartition("/")
            names = self._below.get(path, set())
            names.discard(name)
            if not names:
                self._below.pop(path, None)

    def _set(self, path: str, node: _Node) -> None:
        self._nodes[path] = node
        while "/" in path:
            path, _, name = path.rpartition("/")
            self._below.setdefault(path, set()).add(name)

    def _put(self, path: str, value: Any, report: Report) -> None:
        if not isinstance(value, Mapping):
            self._set(path, checks.text(value, f"sysfs {path}", report).strip())
            return
        checks.unknown_keys(value, ("error", "link", "directory"), f"sysfs {path}", report)
        if "link" in value:
            self._set(path, _Link(checks.text(value["link"], f"link {path}", report)))
        elif value.get("directory"):
            self._set(path, _Directory())
        elif "error" in value:
            name = checks.text(value["error"], f"error of {path}", report)
            number = getattr(errno, name, None)
            if isinstance(number, int):
                self._set(path, _Broken(number))
            else:
                report(f"error of {path} must be the name of an errno, such as EIO, not {name!r}")

    def read(self, path: str) -> str:
        """See :class:`nodeguard.sources.tree.Tree`."""
        found = self._found(path)
        if isinstance(found, str):
            return found
        raise _failure(errno.EISDIR, path)

    def names(self, path: str) -> tuple[str, ...]:
        """See :class:`nodeguard.sources.tree.Tree`."""
        node, found = self._found(path), self._below.get(path, ())
        if not found and not isinstance(node, _Link | _Directory):
            raise _failure(errno.ENOTDIR, path)
        return tuple(sorted(found))

    def link(self, path: str) -> str:
        """See :class:`nodeguard.sources.tree.Tree`."""
        found = self._found(path)
        if isinstance(found, _Link):
            return found.target
        raise _failure(errno.EINVAL, path)

    def exists(self, path: str) -> bool:
        """See :class:`nodeguard.sources.tree.Tree`."""
        return path in self._nodes or path in self._below

    def _found(self, path: str) -> str | _Link | _Directory | None:
        """None: a directory that something lies in."""
        found = self._nodes.get(path)
        if isinstance(found, _Broken):
            raise _failure(found.number, path)
        if found is None and not self.exists(path):
            raise _failure(errno.ENOENT, path)
        return found


class Below:
    """A directory of another tree as a :class:`nodeguard.sources.tree.Tree`."""

    def __init__(self, tree: Tree, directory: str) -> None:
        self._tree, self._directory = tree, directory

    def read(self, path: str) -> str:
        """See :class:`nodeguard.sources.tree.Tree`."""
        return self._tree.read(f"{self._directory}/{path}")

    def names(self, path: str) -> tuple[str, ...]:
        """See :class:`nodeguard.sources.tree.Tree`."""
        return self._tree.names(f"{self._directory}/{path}")

    def link(self, path: str) -> str:
        """See :class:`nodeguard.sources.tree.Tree`."""
        return self._tree.link(f"{self._directory}/{path}")

    def exists(self, path: str) -> bool:
        """See :class:`nodeguard.sources.tree.Tree`."""
        return self._tree.exists(f"{self._directory}/{path}")


def _failure(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
