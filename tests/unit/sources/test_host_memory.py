"""Available memory, through psutil, from any procfs."""

from pathlib import Path

import psutil
import pytest

from nodeguard.sources.host_memory import available_ratio


def test_the_share_that_is_available(tmp_path: Path) -> None:
    """As the given procfs tells it, and psutil's own path stays what it was."""
    others = "".join(f"{name}: 0 kB\n" for name in ("Buffers", "Cached", "Shmem", "Active", "Inactive", "Slab"))
    (tmp_path / "meminfo").write_text(f"MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 250 kB\n{others}")
    assert available_ratio(str(tmp_path)) == 0.25
    assert psutil.PROCFS_PATH == "/proc"


@pytest.mark.parametrize("text", [None, "", "MemTotal: 1000 kB\n", "MemTotal:\n", "MemTotal: x kB\nMemFree: 1 kB\n"])
def test_a_procfs_that_does_not_tell_is_unknown(tmp_path: Path, text: str | None) -> None:
    """Missing, empty, cut short, or nonsense."""
    if text is not None:
        (tmp_path / "meminfo").write_text(text)
    assert available_ratio(str(tmp_path)) is None
