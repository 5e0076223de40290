"""The machine's own kernel log, where it lets tests write to it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from .agents import PRINTK_DEVKMSG, xid_line

KMSG = Path("/dev/kmsg")


def need_kmsg() -> None:
    """Skip where the machine's kernel log may not be written."""
    try:
        with KMSG.open("wb"), PRINTK_DEVKMSG.open("r+"):
            return
    except OSError as error:
        pytest.skip(f"needs to write /dev/kmsg and {PRINTK_DEVKMSG} (root): {error.strerror}")


class KernelRing:
    """Writes records of facility 1 (user), the only ones that the kernel lets programs write."""

    def write(self, text: str) -> None:
        """One record. Opened anew for each, because the kernel limits the rate of each opening."""
        descriptor = os.open(KMSG, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"<4>{text}\n".encode())
        finally:
            os.close(descriptor)

    def xid(self, pci: str, code: int, words: str) -> None:
        """An Xid as the driver prints it."""
        self.write(xid_line(pci, code, words))


def own_slots(count: int) -> list[str]:
    """PCI addresses that no other test of this boot writes about."""
    number = time.monotonic_ns() >> 10
    return [f"{number & 0xffff:04x}:{number >> 16 & 0xff:02x}:{slot:02x}.0" for slot in range(count)]
