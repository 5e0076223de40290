"""The grammar of ``NVRM: Xid`` lines: device, number, process and the driver's words.

Format: open-gpu-kernel-modules 595.45.04, ``kernel_rc.c`` (krcReportXid). The number is the integer right after the
parenthesis of the device; everything behind it may hold text that a user chose (``name=``).
"""

import re
from typing import NamedTuple

from nodeguard.model.device import NODE, Device, gpu_at, mig, pci_address
from nodeguard.model.sample import Attribute

_LONGEST_PROCESS = 64
"""Characters; the kernel's own limit is 15 (TASK_COMM_LEN)."""

_HEAD = re.compile(
    r"NVRM:\s*Xid\s*(?:\((?P<where>[^()]*)\)\s*)?:\s*(?P<code>\d{1,9})(?!\w|\.\d)\s*,?(?P<message>.*)\Z",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
_WHERE = re.compile(
    r"\s*(?:PCI:)?(?P<pci>[0-9a-f:.]+)(?:\s+GPU-I:\s*(?P<gi>\d{1,4}))?(?:\s+GPU-CI:\s*(?P<ci>\d{1,4}))?\s*\Z",
    re.IGNORECASE | re.ASCII,
)
_PROCESS = re.compile(
    r"\s*pid=(?P<pid>[^,]*)(?:,\s*name=(?P<name>[^,]*))?(?:,\s*|\s*\Z)(?P<words>.*)", re.ASCII | re.DOTALL)
_CAUSE = re.compile(r"\bcaused by previous Xid (?P<code>\d{1,6})[\s.]*\Z", re.IGNORECASE | re.ASCII)


class XidLine(NamedTuple):
    """One Xid, before its words are read."""

    code: int
    device: Device
    """The MIG instance where the line names one; :data:`NODE` where it names no device."""
    parent: Device
    """The physical GPU."""
    attributes: dict[str, Attribute]
    """Instance, process and cause, as far as told."""
    message: str
    """The driver's words. A process name with a comma in it may have left a part of itself at their start."""


def _device(where: str | None) -> tuple[Device, Device, dict[str, Attribute]]:
    match = _WHERE.match(where) if where else None
    pci = pci_address(match["pci"]) if match else None
    if match is None or pci is None:
        return NODE, NODE, {}
    parent = gpu_at(pci)
    if match["gi"] is None:
        return parent, parent, {}
    instance = int(match["gi"])
    if match["ci"] is None:
        return mig(parent, instance), parent, {"gpu_instance": instance}
    compute = int(match["ci"])
    return mig(parent, instance, compute), parent, {"gpu_instance": instance, "compute_instance": compute}


def _process(message: str) -> tuple[dict[str, Attribute], str]:
    match = _PROCESS.match(message)
    if match is None:
        return {}, message.strip()
    found: dict[str, Attribute] = {}
    if re.fullmatch(r"(?a:\d{1,10})", match["pid"]):
        found["pid"] = int(match["pid"])
    name = (match["name"] or "").strip()
    if name and name != "<unknown>":
        found["process"] = name[:_LONGEST_PROCESS]
    return found, match["words"].strip()


def read(body: str) -> XidLine | None:
    """Read a line that begins with ``NVRM:``; None if it is no Xid line."""
    head = _HEAD.match(body)
    if head is None:
        return None
    device, parent, attributes = _device(head["where"])
    process, message = _process(head["message"])
    cause = _CAUSE.search(message)
    if cause is not None:
        process["caused_by"] = int(cause["code"])
    return XidLine(int(head["code"]), device, parent, {**attributes, **process}, message)
