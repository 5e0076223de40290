"""Where NVML's library lies below a directory that the operator named."""

from pathlib import Path

NAME = "libnvidia-ml.so.1"

_DIRECTORIES = (
    "", "lib64", "lib", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib",
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu", "run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "run/nvidia/driver/usr/lib64", "home/kubernetes/bin/nvidia/lib64", "opt/nvidia/lib64",
)
"""A directory of libraries; the roots of Debian-like and Red-Hat-like systems; the driver container's root on the
host; where Google's installer puts the driver."""


def find(path: Path) -> Path | None:
    """The library itself, symbolic links resolved, so that an upgraded driver has another name; None: not there."""
    if path.is_dir():
        candidates = [path / directory / NAME for directory in _DIRECTORIES]
        path = next((one for one in candidates if one.is_file()), path)
    return path.resolve() if path.is_file() else None
