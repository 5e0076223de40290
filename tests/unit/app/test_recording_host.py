"""The ``host`` entries of a recording: each reading comes from the source that reads it on a live node."""

import pytest

from .rig import Played, rules

READ_ONLY = {"signal": "host_disk_read_only", "is": 1}


def test_disks_and_interfaces_have_readings_of_their_own() -> None:
    """By mount point and by name; labelled readings by their label."""
    played = Played([{"at": 0, "host": {
        "host_memory_available_ratio": 0.4, "host_memory_corrected_errors_total": {"mc0": 3},
        "host_kubelet_state": "ok",
        "disks": {"/": {"host_disk_read_only": 0}, "/var/lib": {"host_disk_read_only": 1}},
        "nics": {"eth0": {"host_nic_carrier": 1}}}}], rules(READ_ONLY))
    assert played.errors == []
    assert played.open == ["r disk/var/lib"]
    told = sorted((source, f"{one.signal} {one.device} {dict(one.labels)} {one.value}")
                  for one, source in played.player.engine.readings())
    assert told == [
        ("disks", "host_disk_read_only disk/ {} 0"), ("disks", "host_disk_read_only disk/var/lib {} 1"),
        ("host", "host_memory_available_ratio node {} 0.4"),
        ("host", "host_memory_corrected_errors_total node {'controller': 'mc0'} 3"),
        ("host", "host_nic_carrier nic/eth0 {} 1"), ("kubelet", "host_kubelet_state node {} ok")]


def test_an_empty_poll_is_a_poll() -> None:
    """The source is there."""
    played = Played([{"at": 0, "host": {}}], rules(READ_ONLY))
    assert (played.errors, played.player.engine.sources.sees("host")) == ([], True)


@pytest.mark.parametrize(("host", "words"), [
    ({"disks": {"sda": {}}}, "a disk is called by its mount point, such as /var/lib, not 'sda'"),
    ({"disks": {"/": {"host_disk_readonly": 1}}}, "unknown key 'host_disk_readonly' in host disk/ (did you mean"),
    ({"disks": []}, "host disks must be a mapping, not a list"),
    ({"nics": {"eth0": {"host_disk_read_only": 1}}}, "unknown key 'host_disk_read_only' in host nic/eth0"),
    ({"host_disk_read_only": 1}, "unknown key 'host_disk_read_only' in host"),
    ({"host_kubelet_state": "fine"}, "host_kubelet_state must be one of ok, failing, silent, not 'fine'"),
    ({"host_memory_corrected_errors_total": 3}, "host_memory_corrected_errors_total must be a mapping, not a number"),
    ({"host_lockup": 1}, "unknown key 'host_lockup' in host"),
])
def test_a_bad_reading_is_named(host: dict[str, object], words: str) -> None:
    """And the rest of the recording goes on."""
    played = Played([{"at": 0, "host": host},
                     {"at": 1, "host": {"disks": {"/": {"host_disk_read_only": 1}}}}], rules(READ_ONLY))
    assert any(words in error for error in played.errors), played.errors
    assert played.open == ["r disk/"]
