"""Which polls look at the host, by the settings."""

from pathlib import Path

import pytest

from nodeguard.app.host import host_polls
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.model.clock import FakeClock
from nodeguard.sources.polled import Poll
from nodeguard.sources.recording.tree import RecordedTree


def polls(root: Path, **flags: object) -> dict[str, Poll]:
    settings = resolve_agent_settings({"node_name": "n", "proc_root": str(root), **flags}, {})
    return {poll.name: poll for poll in host_polls(settings, RecordedTree(), RecordedTree(), FakeClock())}


@pytest.mark.parametrize(("flags", "names"), [
    ({}, ["host", "disks", "kubelet"]), ({"kubelet_healthz": ""}, ["host", "disks", "kubelet"]),
    ({"container_runtime": ""}, ["host", "disks", "kubelet"]),
    ({"kubelet_healthz": "", "container_runtime": ""}, ["host", "disks"])])
def test_what_can_hang_has_polls_of_its_own(tmp_path: Path, flags: dict[str, object], names: list[str]) -> None:
    """And nobody to ask is no poll."""
    assert list(polls(tmp_path, **flags)) == names


def test_the_sockets_that_are_looked_for(tmp_path: Path) -> None:
    """The usual ones, or the one that is named; a node that shows nothing has every reading unknown."""
    made = polls(tmp_path, kubelet_healthz="", container_runtime="/run/x.sock")
    assert [one.value for one in made["kubelet"].poll(0).samples] == [None, None]
    assert [one.signal for one in made["disks"].poll(0).samples] == ["host_disk_count"]
    memory = made["host"].poll(0).samples[0]
    assert (memory.signal, memory.value) == ("host_memory_available_ratio", None)
