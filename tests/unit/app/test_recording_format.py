"""What a recording may hold, and what is said about one that holds something else (design §4)."""

import json
from pathlib import Path

import pytest

from nodeguard.sources.recording.reader import entries_of_file

from .rig import LINE, XID, Played, gpus, rules


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"at": 1, "kmesg": "x"}, "unknown key 'kmesg' in an entry (did you mean 'kmsg'?)"),
        ({"kmsg": "x"}, "an entry needs 'at', in seconds"),
        ({}, "an entry needs 'at', in seconds"),
        ({"at": "1"}, "an entry needs 'at'"),
        ({"at": True}, "an entry needs 'at'"),
        ({"at": float("nan")}, "an entry needs 'at'"),
        ({"at": 1, "node": 3}, "node must be a mapping, not a number"),
        ({"at": 1, "node": {"uuid": "x"}}, "unknown key 'uuid' in node (did you mean 'uid'?)"),
        ({"at": 1, "node": {"expect": {"gpu": -1}}}, "expect gpu must be a whole number of 0 or more, not -1"),
        ({"at": 1, "nvml": {"gpu": {}}}, "unknown key 'gpu' in nvml (did you mean 'gpus'?)"),
        ({"at": 1, "nvml": {"gpus": {"GPU-a": {"gpu_temp": 4}}}}, "unknown key 'gpu_temp' of GPU GPU-a"),
        ({"at": 1, "nvml": {"gpus": {"GPU-a": {"gpu_xid": 4}}}}, "unknown key 'gpu_xid' of GPU GPU-a"),
        (
            {"at": 1, "nvml": {"gpus": {"GPU-a": {"gpu_power_watts": "much"}}}},
            "gpu_power_watts must be a number, not 'much'",
        ),
        (
            {"at": 1, "nvml": {"gpus": {"GPU-a": {"nvlink_state": {0: "Active"}}}}},
            "nvlink_state must be one of active, inactive",
        ),
        ({"at": 1, "nvml": {"gpus": {"GPU-a": {"pci": "nowhere"}}}}, "pci of gpu/GPU-a is no PCI address: 'nowhere'"),
        ({"at": 1, "nvml_event": {"uuid": "GPU-a"}}, "nvml_event needs uuid and type"),
        ({"at": 1, "nvml_event": {"uuid": "GPU-a", "type": "8"}}, "type must be a whole number of 0 or more, not '8'"),
        ({"at": 1, "kmsg": [["x"]]}, "kmsg must be text, not a list"),
        ({"at": 1, "kmsg": {"text": "x"}}, "unknown key 'text' in kmsg"),
        ({"at": 1, "kmsg_error": "EIO"}, "kmsg_error must be EPIPE or closed, not 'EIO'"),
        ({"at": 1, "exporter": {"page": ""}}, "exporter needs a name and either a page or an error"),
        ({"at": 1, "sysfs": {"/class/x": "1"}}, "a sysfs path is relative and below /sys: '/class/x'"),
        ({"at": 1, "host": {"load": 4}}, "unknown key 'load' in host"),
        ({"at": 1, "pods": {"GPU-a": {}}}, "pods of GPU-a must be a list"),
        ({"at": 1, "repaired": {"device": "gpu/GPU-a", "action": "kick"}}, "action must be one of none, restart_app"),
        ({"at": 1, "agent_restart": 1}, "agent_restart must be true"),
        ({"at": 1, "reboot": {}}, "boot_id must be text, not nothing"),
        ({"until": 5, "at": 3}, "unknown key 'at' in an entry"),
        ("words", "an entry must be a mapping, not text"),
    ],
)
def test_a_bad_entry_is_named(entry: dict[str, object], words: str) -> None:
    """With its place; the rest goes on."""
    played = Played([entry, {"at": 9, "kmsg": LINE}], rules(XID))
    assert any(words in error for error in played.errors), played.errors
    assert played.errors[0].startswith("rec.yaml:1:1: ")


def test_time_must_not_go_back_and_until_is_last() -> None:
    """Equal times are fine."""
    assert Played([{"at": 2}, {"at": 2}, {"at": 1}]).errors == ["rec.yaml:3:1: 'at' must not go back: 1 comes after 2"]
    assert Played([{"at": 2}, {"until": 1}]).errors == ["rec.yaml:2:1: 'until' must not go back: 1 comes after 2"]
    assert Played([{"until": 5}, {"at": 6}]).errors == [
        "rec.yaml:2:1: 'until' is the last entry: nothing may come after it"
    ]


def test_json_lines_and_yaml_are_one_format(tmp_path: Path) -> None:
    """The same entries, the same transitions; blank lines are nothing."""
    entries = [{"at": 1, "kmsg": LINE}, {"at": 2, "nvml": gpus(GPU_a={"pci": "0000:3b:00.0"})}, {"until": 700}]
    file = tmp_path / "night.jsonl"
    file.write_text("\n\n".join(map(json.dumps, entries)) + "\n")
    found = [entry.value for entry in entries_of_file(file, [])]
    assert found == entries
    assert Played(found).told == Played(json.dumps(entries)).told != []


def test_observed_and_soaking_effects_show_what_would_be() -> None:
    """``would`` in transitions and faults; the end counts what is in force."""
    observed = Played([{"at": 1, "kmsg": LINE}], rules({**XID, "mode": "observe"}))
    assert (observed.rows[0]["effect"], observed.rows[0]["would"], observed.final["effect"]) == (
        "event",
        "evict",
        "event",
    )
    hot = rules({"signal": "gpu_temperature_celsius", "above": 90, "effect": "noschedule", "condition": "GpuHot"})
    soaking = Played([{"at": 1, "nvml": gpus(GPU_a={"gpu_temperature_celsius": 95})}, {"until": 9000}], hot, soak=600)
    assert [(row["transition"], row["effect"], row["would"]) for row in soaking.rows] == [
        ("opened", "condition", "noschedule"),
        ("updated", "noschedule", None),
    ]
