"""The host's network, for an agent whose pod has a network of its own."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_OWN = Path("/proc/thread-self/ns/net")


@contextmanager
def host_network(proc_root: Path) -> Iterator[None]:
    """The calling thread opens its sockets in the network of process 1, and in its own again at the end.

    Where that may not be done (setns(2) wants CAP_SYS_ADMIN), or is not needed, it stays where it is.
    """
    try:
        theirs = os.open(proc_root / "1/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        own = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            moved = not os.path.sameopenfile(theirs, own) and _enter(theirs)
            yield
            if moved:
                _enter(own)
        finally:
            os.close(own)
    finally:
        os.close(theirs)


def _enter(namespace: int) -> bool:
    return int(ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET)) == 0
