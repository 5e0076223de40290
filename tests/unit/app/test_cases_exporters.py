"""Cases from the field about exporters, played with every shipped rule."""

import re
from pathlib import Path
from typing import Any

import pytest

from .rig import Played

PAGES = Path(__file__).parents[2] / "fixtures/exporters"
GPU = ("GPU-aaaa", "GPU-bbbb")


def page(*lines: str, energy: int | None = 1000, gpus: tuple[str, ...] = GPU[:1]) -> str:
    told = [] if energy is None else [f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{UUID="{gpu}"}} {energy}' for gpu in gpus]
    return "\n".join([*told, *(f'DCGM_FI_DEV_GPU_UTIL{{UUID="{gpu}"}} 90' for gpu in gpus), *lines]) + "\n"


def dcgm(at: float, text: str) -> dict[str, Any]:
    return {"at": at, "exporter": {"name": "dcgm", "page": text}}


def failed(at: float, error: str = "timeout") -> dict[str, Any]:
    return {"at": at, "exporter": {"name": "dcgm", "error": error}}


def xid(at: float, number: int | None, **labels: str) -> dict[str, Any]:
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    line = [] if number is None else [f'DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="GPU-aaaa"{more}}} {number}']
    return dcgm(at, page(*line, energy=int(at) + 1))


def kmsg(at: float, text: str) -> dict[str, Any]:
    return {"at": at, "kmsg": f"NVRM: Xid (PCI:0000:3b:00): {text}"}


@pytest.mark.parametrize("spelling", ["0000000B:00:00.0", "000b:00:00", "0000000b:00:00.0", "b:00:00"])
def test_c07_the_pci_label_is_the_slot_however_it_is_spelt(spelling: str) -> None:
    """The kernel's line of that slot is about the UUID that the exporter told."""
    line = f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-aaaa",pci_bus_id="{spelling}"}} 40'
    played = Played([
        dcgm(0, page(line)),
        {"at": 10, "kmsg": "NVRM: Xid (PCI:000b:00:00): 79, pid='<unknown>', name=<unknown>, "
                          "GPU has fallen off the bus."}])
    assert played.errors == []
    fault = played.fault("gpu-lost")
    assert (fault["device"], fault["pci"]) == ("gpu/GPU-aaaa", "000b:00:00.0")


def test_c25c_a_refused_connection_for_ninety_seconds() -> None:
    """Nothing is told, and the end is as healthy as the beginning."""
    played = Played([dcgm(0, page()), *[failed(at, "connection refused") for at in range(10, 100, 10)],
                     dcgm(100, page(energy=2000)), {"until": 600}])
    assert played.told == []
    assert played.final["effect"] == "none"


def test_c24b_an_exporter_that_stays_silent_proves_nothing_about_the_node() -> None:
    """A warning about nodeguard's sight; no reboot, no taint, nobody evicted."""
    played = Played([dcgm(0, page()), *[failed(at) for at in range(10, 600, 10)]])
    fault = played.fault("exporter-unreachable")
    assert (fault["severity"], fault["action"], fault["effect"], fault["device"]) == (
        "warning", "fix_software", "condition", "node")
    assert "exporter/dcgm" in fault["message"]
    assert played.final["taints"] == []


def test_c32_the_last_xid_of_before_the_agent_is_a_baseline() -> None:
    """It may be weeks old: neither at first sight nor in the fifty scrapes after it."""
    error = {"err_code": "31", "err_msg": "MMU fault"}
    played = Played([xid(at, 79, **error) for at in range(0, 500, 10)])
    assert played.told == []
    assert "gpu_xid_total" not in played.final["counters"]


def test_c32_zero_is_the_exporters_restart_and_no_recovery() -> None:
    """The fault that the gauge told stays open, and the same number after the restart is no second one."""
    played = Played([xid(0, 0), xid(10, 79), xid(20, 79), xid(30, 0), xid(40, 79), {"until": 100}])
    assert played.final["counters"]["gpu_xid_total"] == 1
    assert [row["transition"] for row in played.rows].count("closed") == 0
    assert played.final["faults"]


def test_c32_what_hides_behind_the_last_value_comes_from_the_kernel_log() -> None:
    """62 and 45 between two scrapes that show 45 alone, then 94: one occurrence each."""
    played = Played([
        xid(0, 31, pci_bus_id="00000000:3B:00.0"), xid(10, 31), kmsg(18.0, "62, pid=1, name=python3, uC Halt"),
        kmsg(18.1, "45, pid=1, name=python3, Ch 00000001"), xid(20, 45), xid(30, 94)])
    assert played.final["counters"]["gpu_xid_total"] == 3
    assert any(fault["evidence"].get("code") == 62 and fault["action"] == "reset_gpu"
               for fault in played.final["faults"])
    contained = [fault for fault in played.final["faults"] if fault["evidence"].get("code") == 94]
    assert [fault["count"] for fault in contained] == [1]


def test_c34a_what_was_zero_and_is_absent_is_unknown() -> None:
    """No alarm, and a fault that was open stays so."""
    hot = ['DCGM_FI_DEV_ROW_REMAP_FAILURE{UUID="GPU-aaaa"} 1', 'DCGM_FI_DEV_XID_ERRORS{UUID="GPU-aaaa"} 0']
    played = Played([dcgm(0, page(*hot)), *[dcgm(at, page(energy=at)) for at in range(10, 300, 10)]])
    assert played.told == ["0 opened gpu-row-remap-failed gpu/GPU-aaaa"]


def test_c34b_a_frozen_page_is_stale_and_its_values_are_unknown() -> None:
    """A warning after twenty equal pages; a fault that it told is not cleared by it."""
    line = 'DCGM_FI_DEV_ROW_REMAP_FAILURE{UUID="GPU-aaaa"} 1'
    played = Played([dcgm(at, page(line)) for at in range(0, 260, 10)])
    assert "190 opened exporter-stale node" in played.told
    assert not [row for row in played.rows if row["transition"] == "closed"]
    known = {sample.signal for sample, source in played.player.engine.readings() if source == "exporter/dcgm"}
    assert known == {"gpu_listed", "gpu_vendor", "source_stale"}
    assert not any("not-listed" in fault or "lost" in fault for fault in played.open)


def test_c34c_five_timeouts_are_a_source_that_is_down() -> None:
    """Known as down at once, told when it lasts."""
    played = Played([dcgm(0, page()), *[failed(at) for at in range(10, 60, 10)], {"until": 120}])
    assert played.open == ["exporter-unreachable node"]
    readings = {sample.signal: sample.value for sample, _ in played.player.engine.readings()}
    assert readings["source_up"] == 0
    assert "gpu_utilization_ratio" not in readings


def test_c34d_a_gpu_whose_series_vanish_keeps_its_fault() -> None:
    """Seven go on; NVML is what says that a GPU is lost, and the fault that was open stays."""
    gpus = tuple(f"GPU-{number}" for number in range(8))
    line = 'DCGM_FI_DEV_ROW_REMAP_FAILURE{UUID="GPU-3"} 1'
    rest = tuple(gpu for gpu in gpus if gpu != "GPU-3")
    played = Played([dcgm(0, page(line, gpus=gpus)), *[dcgm(at, page(energy=at, gpus=rest))
                                                      for at in range(10, 200, 10)]])
    assert played.open == ["dcgm-gpu-not-listed gpu/GPU-3", "gpu-row-remap-failed gpu/GPU-3"]
    assert played.fault("dcgm-gpu-not-listed")["effect"] == "event"


def test_c35_mig_instances_are_their_gpu_and_the_host_label_is_nobody() -> None:
    """Eight lines of two GPUs: one thermal fault each, on the UUID, with or without pod and PCI labels."""
    text = (PAGES / "dcgm-mig.prom").read_text().replace("} 61\n", "} 91\n").replace("} 33\n", "} 91\n")
    limits = "".join(f'DCGM_FI_DEV_SLOWDOWN_TEMP{{UUID="{uuid}"}} 87\n' for uuid in (
        "GPU-0f6b8a2e-52c1-4c1f-9d2a-0b1c7e0d4a50", "GPU-1f6b8a2e-52c1-4c1f-9d2a-0b1c7e0d4a51"))
    played = Played([dcgm(at, limits + text) for at in (0, 10)])
    assert played.open == ["gpu-hot gpu/GPU-0f6b8a2e-52c1-4c1f-9d2a-0b1c7e0d4a50",
                           "gpu-hot gpu/GPU-1f6b8a2e-52c1-4c1f-9d2a-0b1c7e0d4a51"]
    assert [fault["count"] for fault in played.final["faults"]] == [1, 1]
    assert "x7k2p" not in str(played.final)


@pytest.mark.parametrize(("name", "metric"), [
    ("amd", "gpu_ecc_uncorrect_total{"), ("intel", "xpum_cache_errors_total{"),
    ("ascend", "npu_chip_info_hbm_ecc_double_bit_error_cnt{")])
@pytest.mark.parametrize("broken", [False, True])
def test_a_node_of_another_vendor_is_guarded_by_the_same_agent(name: str, metric: str, *, broken: bool) -> None:
    """No NVML anywhere: the vendor's page alone makes conditions of GPU types, False while healthy."""
    text = (PAGES / f"{name}.prom").read_text()
    later = "".join(re.sub(r"} 0(\.0)?\b", "} 1", line) if broken and line.startswith(metric) else line
                    for line in text.splitlines(keepends=True))
    played = Played([{"at": 0, "exporter": {"name": name, "page": text}},
                     {"at": 10, "exporter": {"name": name, "page": later}}])
    assert played.errors == []
    statuses = {kind: condition["status"] for kind, condition in played.final["conditions"].items()}
    assert statuses["GpuMemoryFault"] == str(broken)
    assert statuses["GpuThermal"] == statuses["GpuLost"] == "False"
    assert {row["rule"] for row in played.rows} == ({"gpu-ecc-uncorrected"} if broken else set())
    assert played.final["taints"] == (["nodeguard.io/unhealthy=GpuMemoryFault:NoSchedule"] if broken else [])


def test_an_exporter_may_have_a_name_of_its_own() -> None:
    """NAME:MAPPING, as in the agent's option; an unknown one is a mistake of the recording."""
    played = Played([{"at": 0, "exporter": {"name": "second:dcgm", "page": page()}}])
    assert {source for _, source in played.player.engine.readings()} == {"exporter/second", "agent"}
    assert "no exporter is known by the name 'dcmg'" in Played(
        [{"at": 0, "exporter": {"name": "dcmg", "page": ""}}]).errors[0]
