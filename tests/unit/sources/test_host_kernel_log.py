"""What the kernel prints of its host, in the words of several versions, and what looks like it and is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.sources.host_kernel_log import LONGEST_TEXT, HostKernelLog

TOLD = [
    ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:1234]", "host_lockup node soft_lockup python3"),
    ("NMI watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:77]",
     "host_lockup node soft_lockup kworker/3:1"),
    ("BUG: soft lockup - CPU#0 stuck for 67s!", "host_lockup node soft_lockup"),
    ("watchdog: CPU4: Watchdog detected hard LOCKUP on cpu 5", "host_lockup node hard_lockup"),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 1", "host_lockup node hard_lockup"),
    ("INFO: task python3:1234 blocked for more than 120 seconds.", "host_lockup node hung_task python3"),
    ("INFO: task kworker/u64:3:99 blocked in I/O wait for more than 120 seconds.",
     "host_lockup node hung_task kworker/u64:3"),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", "host_lockup node rcu_stall"),
    ("INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 3-... }", "host_lockup node rcu_stall"),
    ("BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 35s!", "host_lockup node workqueue"),
    ("Kernel panic - not syncing: Fatal machine check", "host_kernel_error node panic"),
    ("BUG: unable to handle page fault for address: 0000", "host_kernel_error node oops"),
    ("kernel BUG at mm/slub.c:379!", "host_kernel_error node oops"),
    ("general protection fault, probably for non-canonical address 0x1: 0000 [#1] SMP", "host_kernel_error node oops"),
    ("Unable to handle kernel NULL pointer dereference at virtual address 0", "host_kernel_error node oops"),
    ("Out of memory: Killed process 12 (python3) total-vm:1kB, anon-rss:1kB", "host_oom_kill node host python3 12"),
    ("Out of memory: Kill process 12 (a b) score 9 or sacrifice child", "host_oom_kill node host a b 12"),
    ("Memory cgroup out of memory: Killed process 7 (pt) total-vm:1kB", "host_oom_kill node cgroup pt 7"),
    ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800400",
     "host_hardware_error node cpu uncorrected"),
    ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 9: 8c00004000010090",
     "host_hardware_error node cpu corrected"),
    ("[Hardware Error]: Corrected error, no action required.", "host_hardware_error node cpu corrected"),
    ("[Hardware Error]: Deferred error, no action required.", "host_hardware_error node cpu deferred"),
    ("[Hardware Error]: Uncorrected, software restartable error.", "host_hardware_error node cpu uncorrected"),
    ("{1}[Hardware Error]: event severity: recoverable", "host_hardware_error node firmware uncorrected"),
    ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0", "host_hardware_error node memory corrected"),
    ("EDAC MC11: 1 UE memory read error on CPU_SrcID#0", "host_hardware_error node memory uncorrected"),
    ("Memory failure: 0x7f3a: recovery action for dirty LRU page: Recovered",
     "host_hardware_error node memory uncorrected"),
    ("blk_update_request: I/O error, dev sda, sector 8 op 0x0:(READ)", "host_disk_error disk/dev/sda io"),
    ("I/O error, dev nvme0n1, sector 123 op 0x1:(WRITE) flags 0x80700", "host_disk_error disk/dev/nvme0n1 io"),
    ("critical medium error, dev dm-3, sector 456", "host_disk_error disk/dev/dm-3 io"),
    ("Buffer I/O error on dev sda1, logical block 0, async page read", "host_disk_error disk/dev/sda1 io"),
    ("EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls",
     "host_disk_error disk/dev/sda1 filesystem"),
    ("EXT4-fs (dm-0): Remounting filesystem read-only", "host_disk_error disk/dev/dm-0 filesystem"),
    ("XFS (nvme0n1p1): Filesystem has been shut down due to log error",
     "host_disk_error disk/dev/nvme0n1p1 filesystem"),
    ('XFS (sda2): metadata I/O error in "xfs_trans_read_buf_map" at daddr 1',
     "host_disk_error disk/dev/sda2 filesystem"),
    ("BTRFS error (device sda1: state EA): parent transid failed", "host_disk_error disk/dev/sda1 filesystem"),
    ("Aborting journal on device sda1-8.", "host_disk_error disk/dev/sda1 filesystem"),
    ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff", "host_disk_error disk/dev/nvme0 controller"),
    ("nvme nvme0: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 3 timeout, reset controller",
     "host_disk_error disk/dev/nvme0 controller"),
    ("nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
     "pcie_bus_error gpu/0000:3b:00.0 fatal Transaction Layer nvidia"),
    ("mlx5_core 0000:3c:00.1: AER: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Data Link Layer",
     "pcie_bus_error pcie/0000:3c:00.0 nonfatal Data Link Layer mlx5_core"),
    ("nvidia-nvswitch 0000:c1:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Physical Layer, id=c100",
     "pcie_bus_error nvswitch/0000:c1:00.0 fatal Physical Layer nvidia-nvswitch"),
]
SILENT = [
    "", "\n", "usb 1-1: new high-speed USB device", "INFO: lockdep is turned off.",
    "WARNING: CPU: 3 PID: 1 at kernel/x.c:1",
    "python3[4711]: segfault at 0 ip 7f sp 7f error 4", "traps: python3[1] general protection fault ip:7f",
    "python3 invoked oom-killer: gfp_mask=0xcc0", "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)",
    "mce: [Hardware Error]: TSC 0 ADDR 1f0", "mce: CPU0: Thermal monitoring enabled",
    "EDAC MC0: Giving out device to module",
    "{1}[Hardware Error]: event severity: info", "I/O error, dev fd0, sector 0", "I/O error, dev sr0, sector 8",
    "critical target error, dev nvme0n1, sector 0 op 0x3:(DISCARD) flags 0x800", "XFS (sda1): Mounting V5 Filesystem",
    "XFS (sda1): Unmounting Filesystem", "EXT4-fs (sda1): mounted filesystem with ordered data mode",
    "nvme nvme0: I/O 12 QID 3 timeout, aborting", "nvme nvme0: 64/0/0 default/read/poll queues",
    "pcieport 0000:3a:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
    "a program says BUG: soft lockup - CPU#3 stuck for 22s!",
    "nvidia nowhere: PCIe Bus Error: severity=Uncorrected (Fatal)",
]


@pytest.mark.parametrize(("line", "told"), TOLD)
def test_a_line_is_understood(line: str, told: str) -> None:
    """Signal, device, and attributes in their order."""
    found = HostKernelLog().feed(line, 7.5)
    assert found is not None
    (event,) = found.events
    assert " ".join(map(str, (event.signal, event.device, *event.attributes.values()))) == told
    assert (event.text, event.stamp) == (line, 7.5)


@pytest.mark.parametrize("line", SILENT)
def test_a_line_that_is_none_of_these_is_left_to_others(line: str) -> None:
    """However much it looks like one."""
    assert HostKernelLog().feed(line, 0) is None


@given(st.one_of(st.text(max_size=80), st.builds(
    lambda line, cut, more: line[:cut] + more, st.sampled_from([line for line, _ in TOLD]), st.integers(0, 90),
    st.text(max_size=40))))
def test_any_text_is_read_without_a_fall(line: str) -> None:
    """Cut, joined, or nonsense; what is told stays short."""
    told = HostKernelLog().feed(line, None)
    assert told is None or len(told.events[0].text) <= LONGEST_TEXT


def test_a_long_line_costs_no_more_than_its_length() -> None:
    """No expression goes over it again and again."""
    for beginning in ("XFS (sda1): ", "INFO: task ", "Out of memory: Killed process 1 (", "nvme nvme0: I/O "):
        assert HostKernelLog().feed(beginning + "a(" * 100_000, 0) is None
