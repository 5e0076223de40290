"""Xid 63, 64 and 74: the words and registers behind the number decide."""

from collections.abc import Mapping

import pytest

from nodeguard.model.sample import Attribute
from nodeguard.vendors.nvidia.kernel_log import NvidiaKernelLog

ALREADY_PENDING = ("Attempting to remap a row that is already pending remapping. Remapping will occur when the GPU is "
                   "reset")
LINK_14 = "NVRM: Xid (PCI:0003:00:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14"


def attributes(line: str) -> Mapping[str, Attribute]:
    """Attributes of the single event of a line."""
    told = NvidiaKernelLog().feed(line, None)
    assert told is not None
    (event,) = told.events
    return event.attributes


@pytest.mark.parametrize(("code", "words", "resolution"), [
    (63, "Row Remapper: New row marked for remapping, reset gpu to activate.", "remap_pending"),
    (63, "Bank Remapper: New bank marked for remapping, reset gpu to activate.", "remap_pending"),
    (63, "Dynamic Page Retirement: New page retired, reboot to activate (0x00000000001d2f3a).", "retirement"),
    (63, "ECC page retirement recording event", "retirement"),
    (63, "", "unread"),
    (64, "Row Remapper Error: (0x0000000018f00000) - Row Remapping table is full", "remap_failed"),
    (64, "Row Remapper Error: (0x0000000018f00000) - All reserved rows for bank are remapped", "remap_failed"),
    (64, "DRAM Retirement failed due to no spare for retirement at 0x0000000018f00000", "remap_failed"),
    (64, f"Row Remapper: (0x18f00000) - {ALREADY_PENDING}", "remap_pending"),
    (64, "DRAM Retirement failed due to pending row remap at 0x0000000018f00000", "remap_pending"),
    (64, "Row Remapper Error: (0x0000000018f00000) - Internal memory error", "unread"),
    (64, "pid=7, name=table is full, Row Remapper Error: (0x1) - Internal memory error", "unread"),
])
def test_row_remapper_words(code: int, words: str, resolution: str) -> None:
    """63 and 64 are judged by the driver's words at the end of the line, never by a process name."""
    assert attributes(f"NVRM: Xid (PCI:0000:52:00): {code}, {words}")["resolution"] == resolution


@pytest.mark.parametrize(("registers", "resolution"), [
    ("0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "benign"),
    ("0x40800001, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "benign"),
    ("0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "secondary"),
    ("0x200000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "marginal"),
    ("0x300000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "marginal"),
    ("0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "link_error"),
    ("0x100011, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "link_error"),
    ("0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "other"),
    ("0x110000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "other"),
    ("0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0", "other"),
    ("0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "other"),
    ("0x1, 0x0", "unread"),
    ("", "unread"),
    ("0x1, 0x0, 0x0, 0x0, 0x0, 0x0, x", "unread"),
])
def test_nvlink_registers(registers: str, resolution: str) -> None:
    """Xid 74 is judged by its registers; registers missing or cut short are unread."""
    found = attributes(f"{LINK_14}({registers})")
    assert found["resolution"] == resolution
    assert found["link"] == 14


def test_nvlink_line_cut_short() -> None:
    """A line that ends within the registers, or before them, is unread."""
    assert attributes(LINK_14) == {"code": 74, "class": "nvlink", "resolution": "unread", "link": 14}
    assert attributes(LINK_14 + "(0x1, 0x0")["resolution"] == "unread"
