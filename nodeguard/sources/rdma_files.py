"""Reads of small files that remember which ones are not worth another try, and what their words mean.

Reading a counter of a function that the firmware keeps to itself fails with EINVAL and writes a line to the kernel
log (mlx5_cmd_out_err, ACCESS_REG): such a file is asked once. A file that answered before and does not now is a
passing trouble.
"""

import errno
import re

from nodeguard.sources.tree import Tree

AWAY = (errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR)
"""Answers of a file whose device is not there."""

TRIES = 3
"""Failures in a row after which a file rests."""

REST_SECONDS = 300.0

_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?) Gb/sec\b")
_LONGEST_NUMBER = 20


class Refused(Exception):  # noqa: N818 # an answer, not an error of ours
    """EINVAL from a file that never answered: it never will."""


class Files:
    """Reads below one HCA."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._good: set[str] = set()
        self._failures: dict[str, int] = {}
        self._rest: dict[str, float] = {}
        """File → when it may be asked again."""

    def read(self, path: str, now: float, *, vital: bool = False) -> str | None:
        """The file's text; None: it cannot be read now, or rests. ``vital`` files never rest and never refuse.

        OSError when the device is not there, :class:`Refused` when the file refuses for good.
        """
        if self._rest and now < self._rest.get(path, now):
            return None
        try:
            text = self.tree.read(path)
        except OSError as error:
            self._failed(path, error, now, vital=vital)
            return None
        if path not in self._good or path in self._failures:
            self._good.add(path)
            self._failures.pop(path, None)
            self._rest.pop(path, None)
        return text

    def _failed(self, path: str, error: OSError, now: float, *, vital: bool) -> None:
        if error.errno in AWAY:
            raise error
        if vital:
            return
        if error.errno == errno.EINVAL and path not in self._good:
            raise Refused(path) from error
        failures = self._failures[path] = self._failures.get(path, 0) + 1
        if failures >= TRIES:
            self._rest[path] = now + REST_SECONDS


def state_word(text: str | None, words: frozenset[str]) -> str | None:
    """The word of ``4: ACTIVE``, or None when it is none of ``words``."""
    if text is None:
        return None
    word = text.rpartition(": ")[2]
    return word if word in words else None


def rate_gbps(text: str | None) -> float | None:
    """The rate of ``400 Gb/sec (4X NDR)``."""
    match = _RATE.match(text) if text is not None else None
    return None if match is None else float(match[1])


def count(text: str | None) -> int | None:
    """A counter's number; None for anything else, such as ``N/A (no PMA)``."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_NUMBER:
        return None
    return int(text)
