"""Memory of the host. The only importer of psutil."""

import threading

import psutil

_PROCFS = threading.Lock()
"""psutil keeps one path to procfs for the whole process."""


def available_ratio(proc_root: str) -> float | None:
    """Share of the memory that programs can have without swapping; None where procfs does not tell."""
    with _PROCFS:
        before, psutil.PROCFS_PATH = psutil.PROCFS_PATH, proc_root
        try:
            memory = psutil.virtual_memory()
        except (OSError, LookupError, ValueError):  # no meminfo there, or none that psutil understands
            return None
        finally:
            psutil.PROCFS_PATH = before
    return memory.available / memory.total if memory.total else None
