"""Pages of exporters in their real formats, read by the shipped mappings."""

from pathlib import Path

import pytest

from nodeguard.config.mappings import mapping_names, shipped_mapping
from nodeguard.model.device import Device
from nodeguard.model.sample import Batch, Event, Identified, Missed, Sample, SourceState, Value
from nodeguard.model.signals import SIGNALS
from nodeguard.sources.exporter import STALE_AFTER, ExporterPages

PAGES = Path(__file__).parents[2] / "fixtures/exporters"
XID = "DCGM_FI_DEV_XID_ERRORS"


def page(name: str) -> str:
    return (PAGES / f"{name}.prom").read_text()


def pages(mapping: str = "dcgm") -> ExporterPages:
    return ExporterPages(mapping, shipped_mapping(mapping))


def read(name: str, text: str | None = None) -> Batch:
    return pages(name).page(page(name) if text is None else text, 0.0)


def values(batch: Batch, device: str) -> dict[str, Value | None]:
    """Signal (and its labels' values) → value, of one device."""
    return {" ".join([one.signal, *(value for _, value in one.labels)]): one.value
            for one in batch.samples if one.device == device}


def down(batch: Batch) -> str:
    (state,) = [fact for fact in batch.facts if isinstance(fact, SourceState)]
    assert not state.up
    return state.reason


@pytest.mark.parametrize("name", mapping_names())
def test_every_sample_is_one_that_the_catalogue_knows(name: str) -> None:
    """Signals exist, words are states, labels are the signal's; the whole page is read without a complaint."""
    batch = read(name)
    assert batch.counts == {}
    assert batch.complete
    for sample in batch.samples:
        row = SIGNALS[sample.signal]
        assert isinstance(sample.value, str) == bool(row.states) or sample.value is None
        assert sample.value in row.states or not isinstance(sample.value, str)
        assert {label for label, _ in sample.labels} <= set(row.attributes)


def test_dcgm() -> None:
    """Default and extended counters in our units; a blank is unknown, and so is a sum with a blank in it."""
    gpu = "gpu/GPU-0f6b8a2e-52c1-4c1f-9d2a-0b1c7e0d4a50"
    batch = read("dcgm")
    assert values(batch, gpu) == {
        "gpu_listed nvidia": 1, "gpu_vendor": "nvidia", "gpu_temperature_celsius": 61,
        "gpu_memory_temperature_celsius": 58, "gpu_power_watts": 412.652, "gpu_utilization_ratio": 0.97,
        "gpu_memory_used_bytes": 70069 << 20, "pcie_replay_total": 0, "gpu_row_remap_uncorrected_total": 0,
        "gpu_row_remap_corrected_total": 0, "gpu_row_remap_failed": 0, "gpu_ecc_corrected_volatile_total": 2,
        "gpu_ecc_uncorrected_volatile_total": 0, "gpu_retired_pages_total": None,
        "gpu_temperature_slowdown_celsius": 87, "nvlink_crc_errors_total all": 0, "gpu_fabric_state": "completed",
        "gpu_clock_event_idle": 0, "gpu_clock_event_sw_power_cap": 1, "gpu_clock_event_hw_slowdown": 0,
        "gpu_clock_event_sw_thermal": 0, "gpu_clock_event_hw_thermal": 0, "gpu_clock_event_hw_power_brake": 0,
        "gpu_fabric_health_fault degraded_bandwidth": 0, "gpu_fabric_health_fault route_recovery": 0,
        "gpu_fabric_health_fault route_unhealthy": 0, "gpu_fabric_health_fault access_timeout_recovery": 0,
        "gpu_fabric_health_fault incorrect_configuration": 0}
    assert Identified("0000:3b:00.0", Device(gpu)) in batch.facts
    assert batch.events == ()


def test_amd() -> None:
    """With and without the prefix that its operators may set."""
    gpu = "gpu/72ff740f-0000-1000-804c-3b58bf670501"
    batch = read("amd")
    assert values(batch, gpu) == {
        "gpu_listed amd": 1, "gpu_vendor": "amd", "gpu_temperature_celsius": 40, "gpu_memory_temperature_celsius": 33,
        "gpu_power_watts": 131, "gpu_utilization_ratio": 0, "gpu_memory_total_bytes": 196592 << 20,
        "gpu_memory_used_bytes": 283 << 20, "gpu_ecc_corrected_volatile_total": 2,
        "gpu_ecc_uncorrected_volatile_total": 0, "gpu_link_uncorrected_errors_total": 0, "pcie_replay_total": 0,
        "gpu_health_state device": "healthy"}
    assert values(batch, "node")["gpu_count"] == 2
    prefixed = page("amd").replace("\ngpu_", "\namd_gpu_").replace("\npcie_", "\namd_pcie_")
    assert values(read("amd", prefixed), gpu) == values(batch, gpu)


def test_intel() -> None:
    """The hottest tile stands for the device; a card's line names no device."""
    gpu = "gpu/00000000-0000-0029-0000-002f0bd58080"
    batch = read("intel")
    assert values(batch, gpu) == {
        "gpu_listed intel": 1, "gpu_vendor": "intel", "gpu_temperature_celsius": 55,
        "gpu_memory_temperature_celsius": 48, "gpu_power_watts": 431, "gpu_utilization_ratio": 0.97,
        "gpu_memory_used_bytes": 60129542144, "gpu_ecc_corrected_volatile_total": 0,
        "gpu_ecc_uncorrected_volatile_total": 0, "gpu_driver_errors_total": 0, "gpu_resets_total": 0}
    assert len({one.device for one in batch.samples if one.signal == "gpu_listed"}) == 2


def test_intel_xpumd() -> None:
    """XPU Manager's second exporter: devices by hw_id or hw_parent, and the state of memory that holds now."""
    batch = read("intel", """
hw_temperature_celsius{hw_id="a",hw_name="temp-2",hw_sensor_location="gpu",pci_bdf="0000:05:00.0",statistic="max"} 61
hw_temperature_celsius{hw_id="a",hw_name="temp-4",hw_sensor_location="gpu",pci_bdf="0000:05:00.0",statistic="min"} 99
hw_temperature_celsius{hw_id="a",hw_name="temp-3",hw_sensor_location="memory",pci_bdf="0000:05:00.0",statistic="max"} 58
hw_status{hw_id="a",hw_name="mem-1",hw_state="ok",hw_type="memory",pci_bdf="0000:05:00.0"} 0
hw_status{hw_id="a",hw_name="mem-1",hw_state="degraded",hw_type="memory",pci_bdf="0000:05:00.0"} 1
hw_status{hw_id="a",hw_name="freq-1",hw_state="throttled",hw_type="frequency",pci_bdf="0000:05:00.0"} 1
hw_temperature_celsius{hw_id="b_temp_0",hw_name="temp_0",hw_parent="b",hw_sensor_location="gpu",statistic="max"} 40
""")
    assert values(batch, "gpu/a") == {
        "gpu_listed intel": 1, "gpu_vendor": "intel", "gpu_temperature_celsius": 61,
        "gpu_memory_temperature_celsius": 58, "gpu_health_state memory": "warning"}
    assert values(batch, "gpu/b")["gpu_temperature_celsius"] == 40


def test_ascend() -> None:
    """Health, network and link are told apart."""
    batch = read("ascend")
    assert values(batch, "gpu/185011D4-21104518-A0C4ED94-14CC040A-56102003") == {
        "gpu_listed huawei": 1, "gpu_vendor": "huawei", "gpu_temperature_celsius": 45,
        "gpu_memory_temperature_celsius": 42, "gpu_power_watts": 93.6, "gpu_utilization_ratio": 0,
        "gpu_memory_used_bytes": 3305 << 20, "gpu_memory_total_bytes": 65536 << 20,
        "gpu_ecc_corrected_volatile_total": 1, "gpu_ecc_uncorrected_volatile_total": 0,
        "gpu_health_state device": "healthy", "gpu_health_state network": "unhealthy",
        "gpu_health_state bus": "healthy", "gpu_link_state network": "down"}
    assert values(batch, "node")["gpu_count"] == 2


def test_ascend_ports() -> None:
    """Later chips have several ports: a link each; the same number on both dies is one, up when both are."""
    batch = read("ascend", """
npu_chip_info_link_status{id="0",vdie_id="a",udie="0",port="4"} 1
npu_chip_info_link_status{id="0",vdie_id="a",udie="1",port="4"} 1
npu_chip_info_link_status{id="0",vdie_id="a",udie="0",port="5"} 1
npu_chip_info_link_status{id="0",vdie_id="a",udie="1",port="5"} 0
npu_chip_info_link_status{id="0",vdie_id="a",udie="0",port="6"} -1
""")
    links = {label: value for label, value in values(batch, "gpu/a").items() if "link" in label}
    assert links == {"gpu_link_state 4": "up", "gpu_link_state 5": "down", "gpu_link_state 6": None}


@pytest.mark.parametrize("blank", [
    "NaN", "+Inf", "-Inf", "2147483632", "2147483635", "9223372036854775792", "9223372036854775794",
    "9.223372036854776e+18", "140737488355328", "140737488355331.000000"])
def test_blanks_are_unknown(blank: str) -> None:
    """Neither 0 nor a fault."""
    batch = read("dcgm", f'DCGM_FI_DEV_GPU_TEMP{{UUID="GPU-a"}} {blank}\nDCGM_FI_DEV_GPU_UTIL{{UUID="GPU-a"}} 1\n')
    assert values(batch, "gpu/GPU-a")["gpu_temperature_celsius"] is None


def test_a_bad_line_costs_itself() -> None:
    """It is counted; bad lines of metrics that nobody asked for are not looked at."""
    good = 'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 50'
    bad = ['DCGM_FI_DEV_GPU_TEMP{UUID="GPU-b" 50', 'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-a"} x', "DCGM_FI_DEV_GPU_UTIL",
           "OTHER{ x"]
    batch = read("dcgm", "\n".join([*bad, good]))
    assert batch.counts == {"exporter_malformed_total": 3}
    assert values(batch, "gpu/GPU-a")["gpu_temperature_celsius"] == 50


def test_names_that_are_no_words_name_no_device() -> None:
    """A page cannot make up names that would not be a device's."""
    lines = "\n".join(f'DCGM_FI_DEV_GPU_TEMP{{UUID="{name}"}} 50' for name in ("a/b", "", "x y", "é", "a" * 200))
    assert "names no device" in down(read("dcgm", lines))


def test_a_page_without_a_device_is_no_sight() -> None:
    """An HTML page, an empty one, another exporter's: the source is down, and nothing is lost."""
    for text in ("", "<html>hello</html>", page("amd")):
        batch = read("dcgm", text)
        assert down(batch) == "the page names no device that the mapping dcgm could read"
        assert Missed() in batch.facts
        assert batch.samples == ()


def test_no_page_is_no_fault_of_the_hardware() -> None:
    """Down, with the reason, and a missed poll."""
    batch = pages().failed("connection refused", 0.0)
    assert down(batch) == "connection refused"
    assert Missed() in batch.facts


def test_a_device_keeps_its_name_when_a_line_lacks_its_uuid() -> None:
    """Index and PCI address stand for the UUID that other lines gave them, also if those come later."""
    text = ('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 50\nDCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",pci_bus_id="0:3B:0"} 40\n'
            'DCGM_FI_DEV_POWER_USAGE{pci_bus_id="0000:3b:00.0"} 70\n')
    reader = pages()
    assert values(reader.page(text, 0.0), "gpu/GPU-a")["gpu_power_watts"] == 70
    again = reader.page(text, 10.0)
    assert values(again, "gpu/GPU-a")["gpu_utilization_ratio"] == 0.5
    assert {one.device for one in again.samples if one.signal == "gpu_listed"} == {"gpu/GPU-a"}


def test_partitions_of_one_slot_are_not_taken_for_replacements() -> None:
    """Several devices behind one PCI address: none of them is told to be the slot's."""
    lines = "\n".join(f'npu_chip_info_power{{vdie_id="u{n}",pcie_bus_info="0000:3b:00.{n}"}} 1' for n in (0, 1))
    assert not [fact for fact in read("ascend", lines).facts if isinstance(fact, Identified)]


def xid(*lines: str) -> str:
    return "\n".join(['DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 50', *(f'{XID}{{UUID="GPU-a"}} {line}' for line in lines)])


@pytest.mark.parametrize(("numbers", "told"), [
    ((31, 31, 45), [45]), ((0, 79), [79]), ((31, 0, 31), []), ((31, 0, 45, 0, 31), [45, 31]),
    ((31, None, 31), []), ((31, None, 94), [94]), ((None, 31, 48), [48]), ((0, 2147483632, 13), [13])])
def test_the_xid_gauge_tells_by_changing(numbers: tuple[int | None, ...], told: list[int]) -> None:
    """First sight is a baseline; 0 and absence are no change, and the same number after them is none either."""
    reader = pages()
    events = [event for number in numbers
              for event in reader.page(xid(*([] if number is None else [str(number)])), 0.0).events]
    assert [event.attributes["code"] for event in events if event.signal == "gpu_xid"] == told
    assert {event.device for event in events} <= {"gpu/GPU-a"}


def test_an_xid_of_the_gauge_means_what_it_means_in_nvml() -> None:
    """With its class; 79 is a lost GPU as well."""
    reader = pages()
    reader.page(xid("0"), 0.0)
    assert reader.page(xid("79"), 10.0).events == (
        Event("gpu_xid", Device("gpu/GPU-a"), {"code": 79, "class": "bus"}),
        Event("gpu_lost", Device("gpu/GPU-a"), {"cause": "xid", "code": 79}))


def frozen(energy: str = "1000", temperature: int = 50) -> str:
    return (f'DCGM_FI_DEV_GPU_TEMP{{UUID="GPU-a"}} {temperature}\n'
            f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{UUID="GPU-a"}} {energy}\n')


def test_a_page_that_does_not_change_is_stale() -> None:
    """From the twentieth equal page on it lists devices and says no values; the next change ends it."""
    reader = pages()
    batches = [reader.page(frozen(), 0.0) for _ in range(STALE_AFTER)]
    assert all(values(one, "gpu/GPU-a")["gpu_temperature_celsius"] == 50 for one in batches[:-1])
    assert values(batches[-1], "gpu/GPU-a") == {"gpu_listed nvidia": 1, "gpu_vendor": "nvidia"}
    assert down(batches[-1]) == "its page has not changed for 20 scrapes"
    assert values(batches[-1], "node") == {"source_stale exporter/dcgm": 1}
    fresh = reader.page(frozen("1001"), 0.0)
    assert values(fresh, "node") == {"source_stale exporter/dcgm": 0}
    assert values(fresh, "gpu/GPU-a")["gpu_temperature_celsius"] == 50


@pytest.mark.parametrize("energy", ["NaN", "9223372036854775792"])
def test_without_a_known_energy_nothing_is_called_stale(energy: str) -> None:
    """An idle GPU of which only the temperature is told may well stay the same."""
    reader = pages()
    assert all(Sample("gpu_temperature_celsius", Device("gpu/GPU-a"), 50) in reader.page(frozen(energy), 0.0).samples
               for _ in range(2 * STALE_AFTER))
