"""Agents that are restarted, and machines that are rebooted, while GPUs are healthy, hang or are gone."""

from pathlib import Path

from .machine import machine

BAD = 3


def test_a_restart_on_a_healthy_machine_tells_nothing(tmp_path: Path) -> None:
    """Two agents, one after the other, say no word, and every condition is False."""
    with machine(tmp_path) as node:
        node.poll(31)
        node.restart_agent()
        node.poll(61)
        assert node.told == []
        assert {one.status for one in node.engine.intent().conditions} == {"False"}


def test_a_stall_that_ended_while_no_agent_ran(tmp_path: Path) -> None:
    """The next agent never meets the call that hung: that the GPU answers is evidence enough."""
    with machine(tmp_path) as node:
        node.driver.gpus[BAD].hang()
        node.poll(3)
        node.restart_agent()
        node.driver.gpus[BAD].heal()
        assert node.faults().keys() == {("gpu-driver-stalled", node.device(BAD))}
        node.poll(8)
        assert node.faults() == {}


def test_a_gpu_that_hangs_over_a_restart_keeps_its_name(tmp_path: Path) -> None:
    """It cannot say who it is: its slot tells, it is not called lost, and nobody else is."""
    with machine(tmp_path) as node:
        node.restart_agent()
        node.driver.gpus[BAD].hang()
        node.restart_agent()
        node.poll(35)
        assert node.faults().keys() == {(rule, node.device(BAD)) for rule in ("gpu-driver-stalled", "gpu-driver-hung")}
        assert node.taint == "GpuDriverFault"
        node.driver.gpus[BAD].heal()
        node.poll(8)
        assert node.faults() == {}
        assert node.engine.series.value("gpu_temperature_celsius", node.device(BAD)) == 35


def test_everything_hangs_over_a_restart(tmp_path: Path) -> None:
    """Every GPU that was told as stalled stays so until it answers; none is called lost."""
    with machine(tmp_path, gpus=2) as node:
        node.driver.hang()
        node.poll(3)
        stalled = {("gpu-driver-stalled", node.device(index)) for index in range(2)}
        assert stalled <= node.faults().keys()
        node.restart_agent()
        node.poll(5)
        assert stalled <= node.faults().keys()
        assert {rule for rule, _ in node.faults()} == {"gpu-driver-stalled"}
        node.driver.heal()
        node.poll(95)
        assert node.faults() == {}


def test_a_reboot_that_does_not_bring_the_gpu_back(tmp_path: Path) -> None:
    """The old fault ends with the boot; after five minutes of grace the empty slot is a lost GPU again."""
    with machine(tmp_path) as node:
        lost = node.device(BAD)
        node.driver.remove(node.driver.gpus[BAD])
        node.poll(2)
        node.reboot()
        node.poll(2)
        assert node.faults() == {}
        node.poll(300)
        assert node.faults().keys() == {("gpu-lost", lost)}
