"""The list of Xid numbers: what each means, what it calls for, and why nodeguard says so.

The data is ``xids.tsv``, one number a line; its head names its sources. The table speaks for the number alone.
For the codes in :data:`BY_WORDS` the words behind the number decide, and the table's action and effect are those
of the worst case.
"""

import functools
from dataclasses import dataclass
from importlib import resources

UNKNOWN = "unknown"
"""Class of a number outside the table, NVML's 999 among them: visible, never a taint."""

CLASSES = (
    "application", "memory", "nvlink", "bus", "gpu", "firmware", "driver", "power", "host", "informational", "unused",
    UNKNOWN,
)
"""What kind of trouble a number tells; ``gpu`` is hardware of the GPU that is none of the more special kinds."""

BY_WORDS = frozenset({63, 64, 74, 79, *range(144, 151), 154})
"""Codes judged by what the line says beside the number, or (79) by another signal."""


@dataclass(frozen=True, slots=True)
class XidInfo:
    """One row of the table."""

    code: int
    identifier: str
    """Name in the driver's ``nverror.h``."""
    meaning: str
    xid_class: str
    """A word of :data:`CLASSES`."""
    action: str
    """A word of :data:`nodeguard.model.fault.ACTIONS`."""
    effect: str
    """A word of :data:`nodeguard.model.fault.EFFECTS`."""
    why: str
    """Reason of the choice, and where sources disagree which one decided."""


@functools.cache
def table() -> dict[int, XidInfo]:
    """Every known number, in order."""
    text = resources.files(__package__).joinpath("xids.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines() if line and not line.startswith("#"))
    return {int(code): XidInfo(int(code), *rest) for code, *rest in rows}


def explain(code: int) -> XidInfo | None:
    """What is known of an Xid number; None outside the table."""
    return table().get(code)


def xid_class(code: int) -> str:
    """The class of a number, :data:`UNKNOWN` outside the table."""
    info = table().get(code)
    return UNKNOWN if info is None else info.xid_class
