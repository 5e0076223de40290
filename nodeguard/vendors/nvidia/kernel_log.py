"""What the NVIDIA drivers print to the kernel log, as events, samples and facts.

One call per kernel record. Foreign records cost a few substring tests. A message begins where its record begins,
because a process name may hold a line break; the one message that the driver itself breaks over lines (a GPU that
left the bus) is read from its first line on, in one record or in several.
"""

import re
from collections.abc import Mapping

from nodeguard.model.device import NODE, Device, gpu, gpu_at, nvswitch, pci_address
from nodeguard.model.sample import Attribute, Event, Identified, Sample, Told
from nodeguard.vendors.nvidia import xid_line, xid_words
from nodeguard.vendors.nvidia.xids import table, xid_class

LONGEST_TEXT = 300
"""Characters of a line kept for people."""

_BLOCK_SECONDS = 5.0
"""How long the first line of a broken message waits for its last one; the driver prints them within a millisecond."""

_NOTHING = Told()

# What journald and syslog put before a kernel line. Nothing else may come first: any other word is a program's.
_PREFIX = re.compile(
    r"\s*(?:(?:[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,:Z+-]{0,16})"
    r"\s+\S{1,255}\s+(?=kernel:))?(?:kernel:\s*)?(?:\[[^\[\]\n]{1,40}\]\s*)?(?=nvrm:|nvidia-nvswitch)",
    re.IGNORECASE | re.ASCII,
)
_FLAGS = re.IGNORECASE | re.ASCII
_ADDRESS = r"(?:-|\s+)(?:at\s+)?(?:PCI:)?(?P<pci>[0-9a-f:.]{4,20}?):?\s+"
_UUID = re.compile(rf"NVRM:\s+GPU{_ADDRESS}(?P<uuid>GPU-[0-9a-z-]{{1,64}})\s*\Z", _FLAGS)
_LOST = re.compile(rf"NVRM:\s+GPU{_ADDRESS}(?:GPU\s+)?(?:has\s+)?fallen off the bus", _FLAGS)
_LOST_BEGINS = re.compile(r"NVRM:\s+The NVIDIA GPU\s+(?:at\s+)?(?:PCI:)?(?P<pci>[0-9a-f:.]{4,20})", _FLAGS)
_LOST_GOES_ON = re.compile(r"NVRM:\s+\(PCI ID\b.*\binstalled in this system has\s*\Z", _FLAGS)
_LOST_ENDS = re.compile(r"NVRM:\s+(?:\(PCI ID\b.*\bhas\s+)?fallen off the bus", _FLAGS)
_INIT_FAILED = re.compile(rf"NVRM:\s+(?:GPU{_ADDRESS})?RmInitAdapter failed!", _FLAGS)
_PROBE_FAILED = re.compile(r"NVRM:\s+The NVIDIA probe routine failed for \d+ device", _FLAGS)
_HEARTBEAT = re.compile(r"NVRM:\s+GPU(?P<index>\d{1,3})\s+\w*IsHeartbeatTimedOut\b", _FLAGS)
_SXID = re.compile(
    r"nvidia-nvswitch(?P<switch>\d{1,4}):\s+SXid\s*\(PCI:(?P<pci>[^()]*)\):\s*(?P<code>\d{1,6})\s*,?\s*"
    r"(?:(?P<word>Fatal|Non-?fatal)\b)?(?:\s*,\s*Link\s+(?P<link>\d{1,4})\b)?(?P<more>\s*(?:Severity\s+\d|Data\s*\{))?",
    _FLAGS,
)


def _at(address: str | None) -> Device:
    pci = pci_address(address) if address else None
    return NODE if pci is None else gpu_at(pci)


class NvidiaKernelLog:
    """Parser of one boot's kernel log. Not for several threads. Never raises, whatever the text."""

    def __init__(self) -> None:
        self._pending: tuple[str, float | None] | None = None
        table()  # read now, not while the first fault waits

    def feed(self, text: str, stamp: float | None) -> Told | None:
        """What one record tells. ``text``: unescaped message; ``stamp``: seconds since boot. None: not the driver's."""
        if "NVRM" not in text and "SXid" not in text and "nvrm" not in text:
            return None
        prefix = _PREFIX.match(text)
        if prefix is None:
            return None
        body = text[prefix.end():]
        line = body.partition("\n")[0]
        if line[:6].lower() == "nvidia":
            return self._sxid(line, stamp)
        xid = xid_line.read(body)
        if xid is not None:
            return self._xid(xid, body, stamp)
        return self._plain(line, body, stamp)

    def state(self) -> dict[str, object]:
        """What a successor must know to read on in the middle of a message, as JSON values."""
        return {} if self._pending is None else {"pending": list(self._pending)}

    def restore(self, state: Mapping[str, object]) -> None:
        """Take over :meth:`state` of a predecessor in the same boot. Values of another form are ignored."""
        pending = state.get("pending")
        if not isinstance(pending, list) or len(pending) != 2:
            return
        address, stamp = pending
        if isinstance(address, str) and (stamp is None or isinstance(stamp, int | float)):
            self._pending = (address, stamp)

    def _xid(self, xid: xid_line.XidLine, text: str, stamp: float | None) -> Told:
        attributes: dict[str, Attribute] = {
            "code": xid.code, "class": xid_class(xid.code), **xid.attributes, **xid_words.read(xid.code, xid.message),
        }
        samples: tuple[Sample, ...] = ()
        if xid.code == 154:
            action = xid_words.recovery_action(xid.message)
            if action is None:
                attributes["resolution"] = "unparsed"
            elif xid.parent == NODE:
                attributes["resolution"] = "no_device"
            else:
                samples = (Sample("gpu_recovery_action", xid.parent, action),)
        event = _event("gpu_xid", xid.device, attributes, text, stamp)
        if xid.code != 79:
            return Told(samples, (event,))
        return Told((), (event, _event("gpu_lost", xid.parent, {"cause": "xid", "code": 79}, text, stamp)))

    def _plain(self, line: str, body: str, stamp: float | None) -> Told:
        if (uuid := _UUID.match(line)) is not None:
            pci = pci_address(uuid["pci"])
            return _NOTHING if pci is None else Told(facts=(Identified(pci, gpu(uuid["uuid"])),))
        if (lost := self._lost(line, body, stamp)) is not None:
            return lost
        if (failed := _INIT_FAILED.match(line)) is not None:
            return _message("init_failed", _at(failed["pci"]), line, stamp)
        if _PROBE_FAILED.match(line):
            return _message("probe_failed", NODE, line, stamp)
        if (heartbeat := _HEARTBEAT.match(line)) is not None:
            # The driver's own index is no NVML index and no address: which GPU it is stays open.
            return _message("gsp_heartbeat", NODE, line, stamp, index=int(heartbeat["index"]))
        return _NOTHING

    def _lost(self, line: str, body: str, stamp: float | None) -> Told | None:
        """A GPU off the bus, told without a number. None: the line is about something else."""
        if (whole := _LOST.match(line)) is not None:
            return _lost(whole["pci"], line, stamp)
        if (begin := _LOST_BEGINS.match(line)) is not None:
            complete = "fallen off the bus" in body
            self._pending = None if complete else (begin["pci"], stamp)
            return _lost(begin["pci"], body, stamp) if complete else _NOTHING
        if _LOST_ENDS.match(line):
            address, self._pending = self._address_of_block(stamp), None
            return _lost(address, line, stamp)
        if line.upper().startswith("NVRM: (PCI ID") and not _LOST_GOES_ON.match(line):
            self._pending = None  # the block says something else of the GPU
        return None

    def _address_of_block(self, stamp: float | None) -> str | None:
        if self._pending is None:
            return None
        address, since = self._pending
        fresh = stamp is None or since is None or 0 <= stamp - since <= _BLOCK_SECONDS
        return address if fresh else None

    def _sxid(self, line: str, stamp: float | None) -> Told:
        match = _SXID.match(line)
        if match is None or match["more"]:  # the lines after the first repeat the number with registers
            return _NOTHING
        pci = pci_address(match["pci"])
        word = match["word"]
        attributes: dict[str, Attribute] = {
            "code": int(match["code"]), "switch": int(match["switch"]),
            "word": word.lower().replace("-", "") if word else "unread",
        }
        if match["link"]:
            attributes["link"] = int(match["link"])
        device = NODE if pci is None else nvswitch(pci)
        return Told(events=(_event("gpu_sxid", device, attributes, line, stamp),))


def _event(signal: str, device: Device, attributes: Mapping[str, Attribute], text: str, stamp: float | None) -> Event:
    return Event(signal, device, attributes, stamp, text[:LONGEST_TEXT])


def _lost(address: str | None, text: str, stamp: float | None) -> Told:
    return Told(events=(_event("gpu_lost", _at(address), {"cause": "kernel_text"}, text, stamp),))


def _message(kind: str, device: Device, text: str, stamp: float | None, **more: Attribute) -> Told:
    return Told(events=(_event("gpu_driver_message", device, {"kind": kind, **more}, text, stamp),))
