"""Local file systems that the node cannot do without: space, inodes, and whether they still take writes.

They are seen as process 1 sees them: an agent in a pod has a root file system of its own. A poll of its own, because
even a local file system can hang with its disk.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nodeguard.model.device import NODE, Device
from nodeguard.model.sample import Batch, Sample
from nodeguard.sources.host_mounts import Mount, holding, parse
from nodeguard.sources.tree import Tree, text_of

SOURCE = "disks"
PERIOD = 10.0


class Space(NamedTuple):
    """Shares that programs may still use; None where the file system does not tell."""

    available: float | None
    inodes: float | None


def space_of(path: Path) -> Space:
    """Of the file system at ``path``. What is reserved for root counts as used, as in df(1)."""
    try:
        told = os.statvfs(path)
    except OSError:
        return Space(None, None)
    usable = told.f_blocks - told.f_bfree + told.f_bavail
    # btrfs and vfat make inodes as they need them and say 0
    return Space(told.f_bavail / usable if usable else None, told.f_favail / told.f_files if told.f_files else None)


class DisksPoll:
    """Reads all of it. See :class:`nodeguard.sources.polled.Poll`."""

    name = SOURCE
    period = PERIOD

    def __init__(self, proc: Tree, root: Path, paths: Sequence[str], space: Callable[[Path], Space] = space_of) -> None:
        """``proc``: ``/proc``. ``root``: where the host's root directory is. ``paths``: as the host knows them."""
        self._proc, self._root, self._paths, self._space = proc, root, tuple(paths), space

    def poll(self, now: float) -> Batch:  # noqa: ARG002 # levels need no time
        """See :class:`nodeguard.sources.polled.Poll`."""
        mounts = holding(self._paths, parse(text_of(self._proc, "1/mountinfo")))
        samples = [sample for mount in mounts for sample in self._of(mount)]
        samples.append(Sample("host_disk_count", NODE, len(mounts)))
        return Batch(source=SOURCE, samples=tuple(samples), complete=True)

    def _of(self, mount: Mount) -> Iterator[Sample]:
        device = Device(f"disk{mount.point}")
        # what nobody can write to cannot fill up: images that are read-only by design are full to the brim
        space = Space(None, None) if mount.read_only else self._space(self._root / mount.point.lstrip("/"))
        yield Sample("host_disk_read_only", device, int(mount.read_only))
        yield Sample("host_disk_available_ratio", device, space.available)
        yield Sample("host_disk_inodes_available_ratio", device, space.inodes)
