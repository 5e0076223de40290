"""End the process groups of a parent that died without ending them itself.

`atexit` does not run when the test run is killed. This program, started by
`process.Reaper` as a child with a pipe on its standard input, reads lines
``+pgid`` and ``-pgid`` and, when the pipe closes, kills the groups still listed.
Standard library only, so that it can run isolated and small.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def leftovers(lines: Iterable[str]) -> set[int]:
    """The groups announced and never withdrawn."""
    groups: set[int] = set()
    for line in lines:
        sign, number = line[0], int(line[1:])
        if sign == "+":
            groups.add(number)
        else:
            groups.discard(number)
    return groups


def main() -> None:
    """Read standard input to its end, then kill what is left."""
    for group in leftovers(sys.stdin):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
