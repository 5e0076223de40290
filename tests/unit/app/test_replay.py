"""The recording format and what replay makes of it (design §4, "Recordings")."""

import json
from pathlib import Path

import pytest

from .rig import LINE, XID, Played, gpus, rules

EXAMPLE = Path(__file__).parent / "example.yaml"
LOST = {"name": "lost", "signal": "gpu_lost", "clear": {"on": "reboot"}}


def test_the_contracts_example_is_understood() -> None:
    """Every key of it."""
    played = Played(EXAMPLE.read_text())
    assert played.errors == []
    told = [line for line in played.told if "stalled" not in line]
    assert told == [
        "0 opened gpu-lost gpu/GPU-bbbb",
        "1.5 opened gpu-xid-uncontained-ecc gpu/GPU-aaaa",
        "2 opened gpu-xid-application gpu/GPU-aaaa",
        "7 closed gpu-xid-uncontained-ecc gpu/GPU-aaaa",
        "9 closed gpu-lost gpu/GPU-bbbb",
        "9 closed gpu-xid-application gpu/GPU-aaaa",
    ]
    assert played.player.at == 600
    assert played.final["faults"] == []


def test_a_transition_has_exactly_these_keys() -> None:
    """As the contract lists them; ``was`` only at a re-keying."""
    played = Played([{"at": 1, "kmsg": LINE}, {"at": 2, "kmsg": "NVRM: GPU at PCI:0000:3b:00: GPU-aaaa"}], rules(XID))
    opened, updated = played.rows
    assert list(opened) == ["at", "transition", "rule", "device", "severity", "action", "effect", "would", "detail"]
    assert opened["detail"] == LINE
    assert list(updated) == [*opened, "was"]
    assert (updated["transition"], updated["device"], updated["was"]) == ("updated", "gpu/GPU-aaaa", "gpu/0000:3b:00.0")


def test_the_end_has_exactly_these_keys() -> None:
    """Strongest effect and action over all open faults, conditions, taints, faults and counters."""
    played = Played(
        [{"at": 1, "kmsg": LINE}, {"at": 2, "kmsg": "NVRM: Xid (PCI:0000:5e:00): 31, x"}],
        rules(XID, {"signal": "gpu_xid", "match": {"code": 31}, "action": "replace_hw", "clear": {"on": "reset"}}),
    )
    final = played.final
    assert list(final) == ["effect", "action", "conditions", "taints", "faults", "counters"]
    assert (final["effect"], final["action"]) == ("evict", "replace_hw")
    assert final["conditions"]["GpuMemoryFault"].keys() == {"status", "reason", "message"}
    assert final["taints"] == ["nodeguard.io/unhealthy=GpuMemoryFault:NoSchedule"]
    assert final["counters"]["kmsg_records_total"] == 2
    assert final["counters"]["gpu_xid_total"] == 2
    json.dumps(final)


def test_without_faults_the_end_is_none() -> None:
    """Nothing happened, nothing is wrong."""
    final = Played([{"at": 1}, {"until": 5}]).final
    assert (final["effect"], final["action"], final["faults"], final["taints"]) == ("none", "none", [], [])


def test_timers_run_between_entries_and_up_to_until() -> None:
    """A timer's transition has its due time; after the last entry nothing more happens."""
    entries: list[dict[str, object]] = [{"at": 1, "kmsg": LINE}, {"at": 601}]
    assert Played(entries, rules(XID)).told[-1] == "601 closed xid gpu/0000:3b:00.0"
    assert Played([{"at": 1, "kmsg": LINE}, {"at": 600}], rules(XID)).open == ["xid gpu/0000:3b:00.0"]
    assert Played([{"at": 1, "kmsg": LINE}, {"until": 9000}], rules(XID)).told[-1].startswith("601 closed")
    assert Played([{"at": 1, "kmsg": LINE}], rules(XID)).open == ["xid gpu/0000:3b:00.0"]


@pytest.mark.parametrize(
    "entry", [{"kmsg": "6,9,1,-;usb"}, {"kmsg_error": "EPIPE"}, {"sysfs": {}}, {}, {"agent_restart": True}]
)
def test_every_entry_is_a_step(entry: dict[str, object]) -> None:
    """Also one that tells nothing."""
    assert "601 closed xid gpu/0000:3b:00.0" in Played([{"at": 1, "kmsg": LINE}, {"at": 700, **entry}], rules(XID)).told


def test_gaps_between_entries_are_no_stalls_and_silent_sources_are_not_missing() -> None:
    """A day of nothing."""
    assert Played([{"at": 0, "nvml": gpus(GPU_a={})}, {"at": 86400, "nvml": gpus(GPU_a={})}]).told == []


def test_entries_of_equal_time_are_taken_in_order() -> None:
    """And keys of one entry in theirs."""
    cure = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    need = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    rule = rules({**XID, "clear": {"on": "reset"}})
    assert Played([{"at": 1, "kmsg": line} for line in (need, LINE, cure)], rule).open == []
    assert Played([{"at": 1, "kmsg": line} for line in (need, cure, LINE)], rule).open == ["xid gpu/0000:3b:00.0"]


def test_a_gpu_that_is_missing_is_lost_unless_its_slot_is_taken() -> None:
    """Only within one boot; a poll that brings an error is not one without GPUs."""
    a, b = {"pci": "0000:3b:00.0"}, {"pci": "0000:5e:00.0"}
    both = {"at": 0, "nvml": gpus(GPU_a=a, GPU_b=b)}
    assert Played([both, {"at": 1, "nvml": gpus(GPU_a=a)}], rules(LOST)).told == ["1 opened lost gpu/GPU-b"]
    assert Played([both, {"at": 1, "nvml": gpus(GPU_a=a, GPU_c=b)}], rules(LOST)).told == []
    assert Played([both, {"at": 1, "nvml": {"error": "UNKNOWN"}}], rules(LOST)).told == []


def test_after_a_reboot_an_empty_slot_is_lost_when_the_grace_is_over() -> None:
    """Five minutes from the reboot entry."""
    a, b = {"pci": "0000:3b:00.0"}, {"pci": "0000:5e:00.0"}
    start = [{"at": 0, "nvml": gpus(GPU_a=a, GPU_b=b)}, {"at": 10, "reboot": {"boot_id": "b2"}}]
    one = gpus(GPU_a=a)
    assert Played([*start, {"at": 309, "nvml": one}], rules(LOST)).told == []
    assert Played([*start, {"at": 309, "nvml": one}, {"at": 310, "nvml": one}], rules(LOST)).told == [
        "310 opened lost gpu/GPU-b"
    ]


def test_missing_null_and_never_given_keys() -> None:
    """Missing: not read in this poll, no age. Null: unknown, ages. Never given: not supported."""
    hot = rules(
        {"signal": "gpu_temperature_celsius", "above": 90, "for": "60s"},
        {"name": "gone", "signal": "gpu_power_watts", "absent": {}},
    )
    polls = [{"at": at, "nvml": gpus(GPU_a={})} for at in range(1, 60)]
    ends: list[dict[str, object]] = [{"at": at, "nvml": gpus(GPU_a={"gpu_temperature_celsius": 95})} for at in (0, 60)]
    assert Played([ends[0], *polls, ends[1]], hot).told == ["60 opened r gpu/GPU-a"]
    nulls = [{"at": at, "nvml": gpus(GPU_a={"gpu_temperature_celsius": None})} for at in (1, 2, 3)]
    assert Played([ends[0], *nulls, ends[1]], hot).told == []


def test_a_hanging_call_runs_until_a_poll_answers() -> None:
    """From its first entry on; each entry is an empty poll; other GPUs go on."""
    rule = rules(
        {"signal": "source_stalled_seconds", "above": 5},
        {"name": "hot", "signal": "gpu_temperature_celsius", "above": 90},
    )
    hang: dict[str, object] = gpus(GPU_a={"hang": True}, GPU_b={"gpu_temperature_celsius": 95})
    polls: list[dict[str, object]] = [{"at": at, "nvml": hang} for at in (1, 2, 3)]
    well = [{"at": at, "nvml": gpus(GPU_a={})} for at in (10, 11, 12)]
    assert Played([*polls, *well], rule).told == [
        "1 opened hot gpu/GPU-b",
        "6 opened r gpu/GPU-a",
        "12 closed r gpu/GPU-a",
    ]
    assert Played([*polls, {"at": 5, "nvml": gpus(GPU_a={})}, {"until": 99}], rule).told == ["1 opened hot gpu/GPU-b"]


def test_errors_of_nvml() -> None:
    """All of it: the source is down. One GPU: lost, or in need of a reset, or only unread."""
    down = rules(
        {"signal": "source_up", "is": 0, "for": "10s", "clear": {"is": 1}},
        LOST,
        {"name": "need", "signal": "gpu_recovery_action", "is": 1},
    )
    error: dict[str, object] = {"at": 0, "nvml": {"error": "LIB_RM_VERSION_MISMATCH"}}
    played = Played(
        [
            error,
            {
                "at": 60,
                "nvml": gpus(
                    GPU_a={"error": "GPU_IS_LOST"}, GPU_b={"error": "RESET_REQUIRED"}, GPU_c={"error": "TIMEOUT"}
                ),
            },
        ],
        down,
    )
    assert sorted(played.told) == [
        "10 opened r node",
        "60 closed r node",
        "60 opened lost gpu/GPU-a",
        "60 opened need gpu/GPU-b",
    ]


def test_nvml_events() -> None:
    """An Xid on the GPU or on its MIG instance; of a changed recovery action only that it changed."""
    rule = rules(
        {"signal": "gpu_xid", "clear": {"after": "1h"}}, {"name": "need", "signal": "gpu_recovery_action", "is": 1}
    )
    none = 0xFFFFFFFF
    played = Played(
        [
            {
                "at": 1,
                "nvml_event": {"uuid": "GPU-a", "type": 8, "data": 43, "gpu_instance": 5, "compute_instance": none},
            },
            {
                "at": 2,
                "nvml_event": {"uuid": "GPU-a", "type": 8, "data": 94, "gpu_instance": none, "compute_instance": none},
            },
            {"at": 3, "nvml_event": {"uuid": "GPU-a", "type": 0x8000, "data": 1}},
        ],
        rule,
    )
    assert played.told == ["1 opened r gpu/GPU-a/gi5", "2 opened r gpu/GPU-a"]


def test_the_kernel_log_of_a_recording() -> None:
    """Headers, facilities, gaps; a line without a header is the kernel's next record."""
    played = Played(
        [
            {"at": 1, "kmsg": f"4,100,5000000,-;{LINE}"},
            {"at": 2, "kmsg": LINE},
            {"at": 3, "kmsg": f"12,102,5000000,-;{LINE}"},
            {"at": 4, "kmsg_error": "EPIPE"},
            {"at": 5, "kmsg": f"4,200,5000000,-;{LINE}"},
        ],
        rules(XID, {"name": "gap", "signal": "kmsg_gap", "clear": {"after": "1h"}}),
    )
    assert played.told == ["1 opened xid gpu/0000:3b:00.0", "5 opened gap node"]
    counters = played.final["counters"]
    assert (counters["kmsg_records_total"], counters["kmsg_lost_total"], counters["kmsg_untrusted_total"]) == (4, 97, 1)
    assert played.fault("xid")["count"] == 3


def test_a_closed_kernel_log_is_a_source_that_is_down() -> None:
    """Until its next record; what it reads again counts once."""
    down = rules({"signal": "source_up", "is": 0, "for": "10s", "clear": {"is": 1}}, XID)
    played = Played(
        [
            {"at": 1, "kmsg": f"4,100,1,-;{LINE}"},
            {"at": 2, "kmsg_error": "closed"},
            {"at": 20, "kmsg": f"4,100,1,-;{LINE}"},
            {"at": 20, "kmsg": "6,101,1,-;usb"},
        ],
        down,
    )
    assert played.told == ["1 opened xid gpu/0000:3b:00.0", "12 opened r node", "20 closed r node"]
    assert played.fault("xid")["count"] == 1


def test_host_pods_and_repaired() -> None:
    """Straight to signals and facts."""
    played = Played(
        [
            {"at": 0, "host": {"host_memory_available_ratio": 0.04}},
            {"at": 1, "pods": {"GPU-a": [{"uid": "p1", "namespace": "ns", "name": "train-0"}]}},
            {"at": 2, "nvml_event": {"uuid": "GPU-a", "type": 8, "data": 48}},
            {"at": 3, "repaired": {"device": "gpu/GPU-b", "action": "reset_gpu"}},
        ],
        rules({"signal": "host_memory_available_ratio", "below": 0.05}, {**XID, "clear": {"on": "reset"}}),
    )
    assert played.told == ["0 opened r node", "2 opened xid gpu/GPU-a"]
    assert played.fault("xid")["pods"] == [{"uid": "p1", "namespace": "ns", "name": "train-0"}]


def test_expectations_hold_over_restart_and_reboot() -> None:
    """The agent reads them from its settings again."""
    rule = rules({"signal": "gpu_count", "below": {"signal": "gpu_count_expected"}})
    start: dict[str, object] = {"at": 0, "node": {"expect": {"gpu": 2, "rdma": {"mlx5_0": {"rate_gbps": 400}}}}}
    poll: dict[str, object] = {"at": 9, "nvml": gpus(GPU_a={})}
    for between in ({"agent_restart": True}, {"reboot": {"boot_id": "b2"}}, {}):
        played = Played([start, {"at": 5, **between}, poll], rule)
        assert played.told == ["9 opened r node"]


def test_a_restart_of_the_agent_is_not_noticed() -> None:
    """Kernel log position, faults and timers go on."""
    line = f"4,900,1000000,-;{LINE}"
    for restart in ([], [{"at": 2, "agent_restart": True}]):
        played = Played([{"at": 1, "kmsg": line}, *restart, {"at": 3, "kmsg": line}, {"until": 700}], rules(XID))
        assert played.told == ["1 opened xid gpu/0000:3b:00.0", "601 closed xid gpu/0000:3b:00.0"]


def test_a_reboot_empties_names_and_the_kernel_log_begins_anew() -> None:
    """Sequence numbers start again; the slot's name is open again."""
    played = Played(
        [
            {"at": 0, "kmsg": "6,500,1,-;NVRM: GPU at PCI:0000:3b:00: GPU-aaaa"},
            {"at": 9, "reboot": {"boot_id": "b2"}},
            {"at": 10, "kmsg": f"4,3,1,-;{LINE}"},
        ],
        rules(XID),
    )
    assert played.open == ["xid gpu/0000:3b:00.0"]
    assert "kmsg_lost_total" not in played.final["counters"]


def test_a_boot_id_that_is_told_late_is_no_reboot() -> None:
    """A node entry after the first line only names the boot."""
    played = Played(
        [{"at": 1, "kmsg": LINE}, {"at": 2, "node": {"name": "n", "uid": "u", "boot_id": "b1"}}], rules(XID)
    )
    assert played.told == ["1 opened xid gpu/0000:3b:00.0"]
    unnamed = Played([{"at": 1, "kmsg": LINE}, {"at": 2, "reboot": {"boot_id": "b2"}}], rules(XID))
    assert unnamed.told[-1] == "2 closed xid gpu/0000:3b:00.0"
