"""Local file systems: which hold the watched paths, and what is told of them."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.sample import Value
from nodeguard.sources.host_disks import DisksPoll, Space, space_of
from nodeguard.sources.host_mounts import LOCAL, holding, parse
from nodeguard.sources.recording.tree import RecordedTree

MOUNTINFO = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid shared:12 - proc proc rw
30 22 259:3 / /var/lib rw,noatime shared:2 master:4 - xfs /dev/nvme0n1p3 {}
31 30 0:44 / /var/lib/shared rw - nfs4 server:/x rw,hard
32 22 8:1 / /srv/my\\040data ro - ext4 /dev/sda1 rw
not a line
33 22 0:50
"""


class Disks:
    """A host with these file systems; every one of them has a tenth of its space and half of its inodes left."""

    def __init__(self, *paths: str, options: str = "rw") -> None:
        self.asked: list[Path] = []
        self.proc = RecordedTree()
        self.mount(options)
        self.poll = DisksPoll(self.proc, Path("/proc/1/root"), paths, self._space)

    def mount(self, options: str) -> None:
        self.proc.patch({"1/mountinfo": MOUNTINFO.format(options)}, pytest.fail)

    def _space(self, path: Path) -> Space:
        self.asked.append(path)
        return Space(0.1, 0.5)

    def read(self) -> dict[str, Value | None]:
        return {f"{one.device} {one.signal}": one.value for one in self.poll.poll(0).samples}


def test_each_file_system_is_told_once_under_its_mount_point() -> None:
    """Paths that are on the same one, or not there at all, add nothing."""
    disks = Disks("/", "/var/lib/kubelet", "/var/lib/containerd", "/var/log")
    assert disks.read() == {
        "disk/ host_disk_read_only": 0, "disk/ host_disk_available_ratio": 0.1,
        "disk/ host_disk_inodes_available_ratio": 0.5,
        "disk/var/lib host_disk_read_only": 0, "disk/var/lib host_disk_available_ratio": 0.1,
        "disk/var/lib host_disk_inodes_available_ratio": 0.5, "node host_disk_count": 2}
    assert disks.asked == [Path("/proc/1/root"), Path("/proc/1/root/var/lib")]


def test_a_server_is_never_asked() -> None:
    """A file system that is not the node's own may hang with its server."""
    disks = Disks("/var/lib/shared/models", "/proc/x")
    assert disks.read() == {"node host_disk_count": 0}
    assert disks.asked == []


@pytest.mark.parametrize("options", ["ro", "ro,noquota", "rw,shutdown", "rw,emergency_ro"])
def test_a_file_system_that_the_kernel_gave_up_takes_no_writes(options: str) -> None:
    """The mount itself still says that it does. What is left on it is unknown then."""
    found = Disks("/var/lib", options=options).read()
    assert found["disk/var/lib host_disk_read_only"] == 1
    assert found["disk/var/lib host_disk_available_ratio"] is None


def test_a_mount_that_is_read_only_for_everybody() -> None:
    """Its mount point may hold any character."""
    assert Disks("/srv/my data/x").read()["disk/srv/my data host_disk_read_only"] == 1


def test_the_uppermost_of_stacked_mounts_counts() -> None:
    """It is the one that programs meet."""
    disks = Disks("/var/lib")
    text = MOUNTINFO.format("rw") + "40 30 0:9 / /var/lib rw - tmpfs tmpfs rw\n"
    disks.proc.patch({"1/mountinfo": text}, pytest.fail)
    assert disks.read() == {"node host_disk_count": 0}


def test_no_view_of_the_host_is_no_disk() -> None:
    """Nothing is guessed from the agent's own file systems."""
    disks = Disks("/")
    disks.proc.clear()
    assert disks.read() == {"node host_disk_count": 0}


def test_space_of_a_real_file_system(tmp_path: Path) -> None:
    """As df(1) has it; what is not there is unknown."""
    found, told = space_of(tmp_path), os.statvfs(tmp_path)
    assert found.available == pytest.approx(told.f_bavail / (told.f_blocks - told.f_bfree + told.f_bavail), abs=0.05)
    assert space_of(tmp_path / "none") == Space(None, None)


@given(st.text(alphabet=st.sampled_from("ab /\\0127-,:\n\t"), max_size=200), st.text(alphabet="ab/", max_size=9))
def test_any_text_is_read_without_a_fall(text: str, path: str) -> None:
    """Lines that are none are left out."""
    assert all(one.type in LOCAL for one in holding([path, "/"], parse(text)))
