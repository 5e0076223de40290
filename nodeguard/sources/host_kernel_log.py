"""What the kernel itself prints of lockups, killed processes, hardware errors, disks and the PCIe bus.

Formats: kernel/watchdog.c, kernel/hung_task.c, kernel/rcu/tree_stall.h, mm/oom_kill.c, mm/memory-failure.c,
arch/x86/kernel/cpu/mce, drivers/edac, drivers/acpi/apei/ghes.c, drivers/pci/pcie/aer.c, block/blk-core.c, fs, and
drivers/nvme, of Linux 4.18 to 6.x. A message begins where its record begins. Foreign records cost one match.
"""

import re
from collections.abc import Callable, Mapping

from nodeguard.model.device import NODE, Device, gpu_at, nvswitch, pci_address, pcie
from nodeguard.model.sample import Attribute, Event, Told
from nodeguard.vendors.pci import GPU_DRIVERS, NVSWITCH_DRIVER

LONGEST_TEXT = 300
"""Characters of a line kept for people."""

_NAME = r"(?P<process>[^\n]{0,64}?)"
_DEV = r"(?P<dev>[\w!.-]{1,32}?)"
_FLAGS = re.ASCII

_BEGINS = re.compile(
    r"(?:NMI )?watchdog: |BUG: |INFO: |rcu: |kernel BUG|Kernel panic|general protection|Unable to handle|Internal error"
    r"|Oops|Out of memory|Memory (?:cgroup out of|failure: )|mce: |(?:\{\d{1,9}\})?\[Hardware Error\]: |EDAC MC"
    r"|blk_update|print_req|I/O error|critical |Buffer I/O|EXT4-fs|XFS |BTRFS |Aborting journal|nvme ", _FLAGS)
_ON_THE_BUS = "PCIe Bus Error: severity=Uncorrect"

_SOFT = re.compile(
    rf"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#\d+ stuck for \d+s!(?: \[{_NAME}:\d+\])?(?=\s|\Z)", _FLAGS)
_HARD = re.compile(r"(?:(?:NMI )?watchdog: )?(?:CPU\d+: )?(?:Watchdog detected hard LOCKUP|BUG: hard lockup)", _FLAGS)
_HUNG = re.compile(rf"INFO: task {_NAME}:\d+ blocked (?:in I/O wait )?for more than \d+ seconds", _FLAGS)
_STALL = re.compile(r"(?:rcu: )?INFO: rcu_\w+ (?:self-detected stall|detected (?:expedited )?stalls)", _FLAGS)
_QUEUE = re.compile(r"BUG: workqueue lockup\b", _FLAGS)
_PANIC = re.compile(r"Kernel panic - not syncing", _FLAGS)
_OOPS = re.compile(
    r"BUG: (?:unable to handle|kernel NULL pointer|Bad page)|kernel BUG at |general protection fault|Oops[:\s]"
    r"|Unable to handle kernel|Internal error: ", _FLAGS)
_OOM = re.compile(
    rf"(?P<cgroup>Memory cgroup o|O)ut of memory(?: \([^)]{{0,64}}\))?: Kill(?:ed)? process (?P<pid>\d{{1,9}}) "
    rf"\({_NAME}\)(?=[\s,]|\Z)", _FLAGS)
_MCE = re.compile(
    r"mce: \[Hardware Error\]: CPU \d+: Machine Check(?: Exception)?: [0-9a-f]+ Bank \d+: (?P<status>[0-9a-f]{1,16})",
    _FLAGS)
_MCE_IN_WORDS = re.compile(r"\[Hardware Error\]: (?P<word>Corrected|Uncorrected|Deferred)\b", _FLAGS)
_FIRMWARE = re.compile(r"\{\d+\}\[Hardware Error\]: event severity: (?P<word>fatal|recoverable|corrected)\b", _FLAGS)
_CONTROLLER = re.compile(r"EDAC MC\d+: (?:\d+ )?(?P<word>CE|UE)\b", _FLAGS)
_POISON = re.compile(
    r"Memory failure: 0x[0-9a-f]+: recovery action for |mce: Uncorrected hardware memory error", _FLAGS)
_BLOCK = re.compile(
    rf"(?:blk_update_request: |print_req_error: )?(?:I/O|critical \w+(?: \w+)?) error, dev {_DEV}, sector \d+"
    r"(?P<more>.*)"
    rf"|Buffer I/O error on dev(?:ice)? {_DEV.replace('dev', 'buffer', 1)}, logical block", _FLAGS)
_FILE_SYSTEM = re.compile(
    rf"EXT4-fs error \(device {_DEV}\)|EXT4-fs \({_DEV.replace('dev', 'ext4', 1)}\): Remounting filesystem read-only"
    rf"|XFS \({_DEV.replace('dev', 'xfs', 1)}\): [^\n]{{0,120}}?(?:[Ss]hut(?:ting)? down|Corruption|I/O [Ee]rror)"
    rf"|BTRFS (?:error|critical) \(device {_DEV.replace('dev', 'btrfs', 1)}[):]"
    rf"|Aborting journal on device {_DEV.replace('dev', 'journal', 1)}(?:-\d+)?\.", _FLAGS)
_NVME = re.compile(
    r"nvme (?P<dev>nvme\d{1,4}): (?:controller is down; will reset|Removing after probe failure|Device not ready; abort"
    r"|I/O [^\n]{1,80}? timeout, (?:reset|disable) controller)", _FLAGS)
_BUS = re.compile(
    r"(?P<driver>\S{1,32}) (?P<pci>[0-9a-f:.]{7,12}): (?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) "
    r"\((?P<severity>Fatal|Non-Fatal)\), type=(?P<layer>[\w ]{1,40}?) ?(?:,|\Z)", _FLAGS)

_NO_DISKS = re.compile(r"(?:fd|sr|loop|ram)\d", _FLAGS)
"""An empty drive's errors are no disk's."""
_HARMLESS = ("(DISCARD)", "(WRITE_ZEROES)")
"""Requests that a disk may refuse for good reason."""
_UNCORRECTED = 1 << 61
"""UC in IA32_MCi_STATUS (Intel SDM volume 3B, 17.3.2.2)."""
_SEVERITIES = {"CE": "corrected", "UE": "uncorrected", "fatal": "uncorrected", "recoverable": "uncorrected"}

Match = re.Match[str]
Row = tuple[re.Pattern[str], Callable[[Match], "Event | None"]]


def _lockup(kind: str) -> Callable[[Match], Event]:
    def make(found: Match) -> Event:
        process = found.groupdict().get("process")
        return Event("host_lockup", NODE, {"kind": kind, **({"process": process} if process else {})})

    return make


def _fault(kind: str) -> Callable[[Match], Event]:
    return lambda _found: Event("host_kernel_error", NODE, {"kind": kind})


def _hardware(kind: str) -> Callable[[Match], Event]:
    def make(found: Match) -> Event:
        word = found.groupdict().get("word") or "uncorrected"
        return Event("host_hardware_error", NODE, {"kind": kind, "severity": _SEVERITIES.get(word, word.lower())})

    return make


def _machine_check(found: Match) -> Event:
    severity = "uncorrected" if int(found["status"], 16) & _UNCORRECTED else "corrected"
    return Event("host_hardware_error", NODE, {"kind": "cpu", "severity": severity})


def _killed(found: Match) -> Event:
    limit = "cgroup" if found["cgroup"] != "O" else "host"
    attributes: dict[str, Attribute] = {"limit": limit, "process": found["process"], "pid": int(found["pid"])}
    return Event("host_oom_kill", NODE, attributes)


def _disk(kind: str) -> Callable[[Match], Event | None]:
    def make(found: Match) -> Event | None:
        groups = found.groupdict()
        more = groups.pop("more", None) or ""
        name = next((value for value in groups.values() if value), "")
        if _NO_DISKS.match(name) or any(word in more for word in _HARMLESS):
            return None
        return Event("host_disk_error", Device(f"disk/dev/{name}"), {"kind": kind})

    return make


def _bus(found: Match) -> Event | None:
    pci, driver = pci_address(found["pci"]), found["driver"]
    if pci is None:
        return None
    make = gpu_at if driver in GPU_DRIVERS else nvswitch if driver == NVSWITCH_DRIVER else pcie
    severity = found["severity"].lower().replace("-", "")
    return Event("pcie_bus_error", make(pci), {"severity": severity, "layer": found["layer"], "driver": driver})


_ROWS: tuple[Row, ...] = (
    (_SOFT, _lockup("soft_lockup")), (_HARD, _lockup("hard_lockup")), (_HUNG, _lockup("hung_task")),
    (_STALL, _lockup("rcu_stall")), (_QUEUE, _lockup("workqueue")),
    (_PANIC, _fault("panic")), (_OOPS, _fault("oops")), (_OOM, _killed),
    (_MCE, _machine_check), (_MCE_IN_WORDS, _hardware("cpu")), (_FIRMWARE, _hardware("firmware")),
    (_CONTROLLER, _hardware("memory")), (_POISON, _hardware("memory")),
    (_BLOCK, _disk("io")), (_FILE_SYSTEM, _disk("filesystem")), (_NVME, _disk("controller")), (_BUS, _bus),
)


class HostKernelLog:
    """Parser of one boot's kernel log: see :class:`nodeguard.sources.kmsg_records.LineParser`. Remembers nothing."""

    def feed(self, text: str, stamp: float | None) -> Told | None:
        """What one record tells. ``text``: unescaped message; ``stamp``: seconds since boot. None: nothing of these."""
        if _BEGINS.match(text) is None and _ON_THE_BUS not in text:
            return None
        for pattern, make in _ROWS:
            found = pattern.match(text)
            if found is not None:
                event = make(found)
                return None if event is None else Told(
                    events=(event._replace(stamp=stamp, text=text.partition("\n")[0][:LONGEST_TEXT]),))
        return None

    def state(self) -> dict[str, object]:
        """See :class:`nodeguard.sources.kmsg_records.LineParser`."""
        return {}

    def restore(self, state: Mapping[str, object]) -> None:
        """See :class:`nodeguard.sources.kmsg_records.LineParser`."""
