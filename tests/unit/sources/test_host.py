"""The host's own readings: from files as the kernel writes them, and unknown where there are none."""

from collections.abc import Mapping
from typing import Any

import pytest

from nodeguard.model.clock import FakeClock
from nodeguard.model.sample import Batch, Value
from nodeguard.sources.host import HostPoll, Machine
from nodeguard.sources.host_clock import WallClock
from nodeguard.sources.recording.tree import RecordedTree

PRESSURE = "some avg10=1.00 avg60={} avg300=0.00 total=1\nfull avg10=1.00 avg60={} avg300=0.00 total=1"
ROUTES = ("Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
          "{0}\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
          "eth7\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0")
NET = "1/root/sys/class/net"


def tree(files: Mapping[str, Any]) -> RecordedTree:
    found = RecordedTree()
    found.patch(files, pytest.fail)
    return found


class Host:
    """A host made of files."""

    def __init__(self, proc: Mapping[str, Any] | None = None, sys: Mapping[str, Any] | None = None) -> None:
        self.proc, self.clock = tree(proc or {}), FakeClock()
        self.kept: WallClock | None = None
        machine = Machine(memory=lambda: None, clock=lambda: self.kept)
        self.poll = HostPoll(tree(sys or {}), self.proc, machine, self.clock)

    def read(self) -> dict[str, Value | None]:
        batch: Batch = self.poll.poll(self.clock.boot())
        return {one.signal + "".join(f" {value}" for _, value in one.labels)
                + (f" {one.device}" if one.device != "node" else ""): one.value for one in batch.samples}


def test_where_the_kernel_tells_nothing_everything_is_unknown() -> None:
    """No file is a fault, and none is zero."""
    assert set(Host().read().values()) == {None}


def test_pressure_is_the_share_of_the_last_minute() -> None:
    """Of some task for CPUs, of every task for memory and disks."""
    host = Host({"pressure/cpu": PRESSURE.format("50.00", "0.00"), "pressure/memory": PRESSURE.format("9.00", "3.25"),
                 "pressure/io": {"error": "EOPNOTSUPP"}})
    found = host.read()
    assert found["host_cpu_pressure_ratio"] == 0.5
    assert found["host_memory_pressure_ratio"] == 0.0325
    assert found["host_io_pressure_ratio"] is None


@pytest.mark.parametrize(("text", "count"), [
    ("nr_free_pages 1\noom_kill 12\nx 1", 12), ("oom_kill -1", None), ("oom_killer 3", None), ("oom_kill 1 2", None)])
def test_killed_processes_are_counted_by_the_kernel(text: str, count: int | None) -> None:
    """One line of many."""
    assert Host({"vmstat": text}).read()["host_oom_kills_total"] == count


def test_the_clock_and_its_jumps() -> None:
    """A jump is what the wall clock did beside the clock that never steps, whichever way."""
    host = Host()
    assert host.read()["host_clock_step_seconds"] is None
    host.clock.advance(5)
    assert host.read()["host_clock_step_seconds"] == 0
    host.clock.step_wall(-3)
    host.kept = WallClock(synchronized=True, max_error=0.25)
    found = host.read()
    assert (found["host_clock_step_seconds"], found["host_clock_synchronized"]) == (3, 1)
    assert found["host_clock_error_seconds"] == 0.25


def test_memory_controllers_by_name() -> None:
    """One that cannot be read is unknown; other names there are none."""
    base = "devices/system/edac/mc"
    files = {"mc0/ce_count": "7", "mc0/ue_count": "0", "mc1/ue_count": {"error": "EIO"}, "power/ue_count": "3"}
    found = Host(sys={f"{base}/{file}": text for file, text in files.items()}).read()
    assert {name: value for name, value in found.items() if "errors_total" in name} == {
        "host_memory_corrected_errors_total mc0": 7, "host_memory_uncorrected_errors_total mc0": 0,
        "host_memory_corrected_errors_total mc1": None, "host_memory_uncorrected_errors_total mc1": None}


def interface(name: str, carrier: int, downs: int = 0) -> dict[str, str]:
    return {f"{NET}/{name}/carrier": str(carrier), f"{NET}/{name}/carrier_down_count": str(downs),
            f"{NET}/{name}/device/vendor": "0x8086"}


def test_the_interfaces_below_a_bond_are_watched() -> None:
    """Those of the default route, and no others."""
    lowers = (("vlan5", "bond0"), ("bond0", "eth0"), ("bond0", "eth1"))
    host = Host({"1/net/route": ROUTES.format("vlan5"), **{f"{NET}/{upper}/lower_{one}/x": "" for upper, one in lowers},
                 **interface("eth0", 1, 2), **interface("eth1", 0),
                 **interface("eth7", 1)})
    found = {name: value for name, value in host.read().items() if "nic" in name}
    assert found == {"host_nic_carrier nic/eth0": 1, "host_nic_link_downed_total nic/eth0": 2,
                     "host_nic_carrier nic/eth1": 0, "host_nic_link_downed_total nic/eth1": 0}


def test_the_interfaces_of_pods_are_not_watched() -> None:
    """A bridge has them below it, and they have no device."""
    host = Host({"1/net/route": ROUTES.format("br0"), f"{NET}/br0/lower_veth1/x": "", f"{NET}/br0/lower_eth0/x": "",
                 f"{NET}/veth1/carrier": "1", **interface("eth0", 1)})
    assert [name for name in host.read() if "carrier" in name] == ["host_nic_carrier nic/eth0"]


def test_an_interface_that_lost_its_route_stays_watched() -> None:
    """The route goes with the link."""
    host = Host({"1/net/route": ROUTES.format("eth0"), **interface("eth0", 1)})
    host.read()
    host.proc.patch({"1/net/route": "Iface", f"{NET}/eth0/carrier": "0"}, pytest.fail)
    assert host.read()["host_nic_carrier nic/eth0"] == 0


def test_a_default_route_of_the_newer_family() -> None:
    """The kernel's own unreachable one through the loopback is none."""
    zeros, one = "0" * 32, "00000400 00000001 00000000 00000003"
    row = f"{zeros} 00 {zeros} 00 {zeros} {one}"
    host = Host({"1/net/ipv6_route": f"{row} lo\n{row} eth0\nfe80{'0' * 28} 40 {zeros} 00 {zeros} {one} eth7",
                 **interface("eth0", 1), **interface("eth7", 1)})
    assert [name for name in host.read() if "carrier" in name] == ["host_nic_carrier nic/eth0"]


def test_a_host_that_may_not_be_looked_at_is_unknown() -> None:
    """Its interfaces are not guessed, and nothing else is lost for it."""
    host = Host({"1/net/route": ROUTES.format("eth0"), f"{NET}/eth0": {"error": "EACCES"}, "vmstat": "oom_kill 1"})
    found = host.read()
    assert (found["host_oom_kills_total"], [name for name in found if "nic" in name]) == (1, [])


def test_a_chain_of_interfaces_that_bites_its_tail_ends() -> None:
    """Whatever the kernel's files say."""
    host = Host({"1/net/route": ROUTES.format("a"), f"{NET}/a/lower_b/x": "", f"{NET}/b/lower_a/x": ""})
    assert not [name for name in host.read() if "nic" in name]
