"""The tree below ``/sys`` that a recording tells, patched entry by entry."""

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodeguard.sources.recording import checks
from nodeguard.sources.recording.checks import Report


@dataclass(frozen=True, slots=True)
class _Broken:
    """A file that is there and cannot be read."""

    number: int


@dataclass(frozen=True, slots=True)
class _Link:
    """A symbolic link; paths below it are given under its own name."""

    target: str


class RecordedTree:
    """A :class:`nodeguard.sources.tree.Tree` made of patches."""

    def __init__(self) -> None:
        self._nodes: dict[str, str | _Broken | _Link] = {}

    def clear(self) -> None:
        """A reboot: nothing is there."""
        self._nodes.clear()

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
        below = path + "/"
        for name in [name for name in self._nodes if name == path or name.startswith(below)]:
            del self._nodes[name]

    def _put(self, path: str, value: Any, report: Report) -> None:
        if not isinstance(value, Mapping):
            self._nodes[path] = checks.text(value, f"sysfs {path}", report).strip()
            return
        checks.unknown_keys(value, ("error", "link"), f"sysfs {path}", report)
        if "link" in value:
            self._nodes[path] = _Link(checks.text(value["link"], f"link {path}", report))
        elif "error" in value:
            name = checks.text(value["error"], f"error of {path}", report)
            number = getattr(errno, name, None)
            if isinstance(number, int):
                self._nodes[path] = _Broken(number)
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
        below = path + "/"
        found = {name[len(below):].partition("/")[0] for name in self._nodes if name.startswith(below)}
        if not found and not isinstance(self._found(path), _Link):
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
        return path in self._nodes or any(name.startswith(path + "/") for name in self._nodes)

    def _found(self, path: str) -> str | _Link | None:
        """None: a directory."""
        found = self._nodes.get(path)
        if isinstance(found, _Broken):
            raise _failure(found.number, path)
        if found is None and not self.exists(path):
            raise _failure(errno.ENOENT, path)
        return found


def _failure(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
