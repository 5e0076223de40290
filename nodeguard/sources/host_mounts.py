"""Which local file systems hold the paths that are watched, from ``mountinfo``."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

LOCAL = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "reiserfs", "vfat", "xfs", "zfs"})
"""Types that live on the node's own disks. Asking any other one may hang with a server, or says nothing of a disk."""

_READ_ONLY = frozenset({"ro", "emergency_ro", "shutdown"})
"""Options of a mount or its file system that takes no writes; the last two are ext4's and XFS's after an error."""
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A file system where it is mounted."""

    point: str
    type: str
    read_only: bool


def parse(mountinfo: str) -> dict[str, Mount]:
    """Mounts by mount point, the uppermost where several are stacked (format: proc(5)). Other lines are left out."""
    mounts = (_mount(line) for line in mountinfo.splitlines())
    return {one.point: one for one in mounts if one is not None}


def _mount(line: str) -> Mount | None:
    place, _, system = line.partition(" - ")
    before, after = place.split(" "), system.split(" ")
    if len(before) < 6 or len(after) < 3:
        return None
    point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), before[4])
    options = {*before[5].split(","), *after[2].split(",")}
    return Mount(point, after[0], bool(options & _READ_ONLY)) if point.startswith("/") else None


def holding(paths: Iterable[str], mounts: dict[str, Mount]) -> list[Mount]:
    """The local file systems that the paths are on, each once."""
    found = (_holding(path.rstrip("/"), mounts) for path in paths)
    return list(dict.fromkeys(one for one in found if one is not None and one.type in LOCAL))


def _holding(path: str, mounts: dict[str, Mount]) -> Mount | None:
    while path and path not in mounts:
        path = path.rpartition("/")[0]
    return mounts.get(path or "/")
