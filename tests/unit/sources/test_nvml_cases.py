"""Cases from the field that NVML tells, by their numbers: GPUs and drivers that are gone, hang, or lack something.

Real pynvml, the source, the shipped rules. Where a sub-case is elsewhere its test bears the same number: C20c in the
doctor's tests, C24 with the real kernel log and liveness in tests/e2e, C25c (an exporter) with the exporter's tests.
"""

import pynvml
import pytest

from nodeguard.model.device import NODE, gpu, gpu_at
from nodeguard.model.sample import Batch, Sample
from nodeguard.sim.driver import SimulatedDriver

from .nvml_rig import rig


def test_c19a_one_of_eight_is_lost_and_the_others_are_read() -> None:
    """GPU_IS_LOST on every call of one GPU: the whole node takes nothing new, only that GPU's users are evicted."""
    with rig(8) as node:
        node.driver.gpus[3].lose()
        node.poll(3)
        assert node.open_rules() == {("gpu-lost", node.device(3))}
        (fault,) = node.engine.intent().faults
        assert (fault.severity, fault.effect, fault.scope, fault.pci) == (
            "critical", "evict", "device", node.driver.gpus[3].pci)
        assert node.engine.intent().taint == "GpuLost"
        node.driver.gpus[5].temperature = 51
        node.poll()
        assert node.engine.series.value("gpu_temperature_celsius", node.device(5)) == 51


def test_c19b_the_handle_itself_cannot_be_had() -> None:
    """A listing in which one handle fails names the GPU that is missing from it."""
    with rig(8) as node:
        node.driver.gpus[3].fail("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_UNKNOWN)
        node.source.poll_all()
        node.poll(2)
        assert node.open_rules() == {("gpu-lost", node.device(3))}


def test_c20a_on_the_bus_but_not_in_the_driver() -> None:
    """sysfs shows four GPUs, NVML three: the fourth is named by its address."""
    def hide(driver: SimulatedDriver) -> None:
        driver.gpus[2].fail("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_UNKNOWN)

    with rig(prepare=hide) as node:
        node.source.poll_all()
        node.poll(2)
        assert node.open_rules() == {("gpu-lost", gpu_at(node.driver.gpus[2].pci))}


def test_c20b_bus_and_driver_agree_on_fewer_than_expected() -> None:
    """Only the expectation from outside sees it."""
    with rig(3) as node:
        node.take(Batch(source="agent", samples=(Sample("gpu_count_expected", NODE, 4),)))
        node.source.poll_all()
        node.poll(31)
        node.source.poll_all()
        node.poll(2)
        (fault,) = node.engine.intent().faults
        assert (fault.rule, fault.device, fault.severity) == ("gpu-count-low", NODE, "critical")


def test_c20c_without_an_expectation_nothing_is_raised() -> None:
    """The same node of three GPUs is as it always was."""
    with rig(3) as node:
        node.poll(70)
        assert node.open_rules() == set()


def test_c20d_what_is_no_gpu_is_not_counted() -> None:
    """NVSwitches and an audio function of the same vendor on the bus are no missing GPUs."""
    with rig(8) as node:
        bus = node.node.sys_root / "bus/pci/devices"
        others = [(f"0000:{number:02x}:00.0", "0x068000") for number in range(0xC1, 0xC7)]
        for name, code in (*others, ("0000:1b:00.1", "0x040300"), ("0000:1c:00.0", "0x040300")):
            (bus / name).mkdir()
            (bus / name / "vendor").write_text("0x10de\n")
            (bus / name / "class").write_text(f"{code}\n")
        node.source.poll_all()
        node.poll(35)
        assert node.open_rules() == set()


def test_c20e_what_is_passed_to_a_guest_is_not_missing() -> None:
    """Eight on the bus, two of them bound to vfio-pci, six in NVML."""
    def pass_through(driver: SimulatedDriver) -> None:
        for one in driver.gpus[6:]:
            one.fail("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_UNKNOWN)
            one.driver_name = "vfio-pci"

    with rig(8, prepare=pass_through) as node:
        node.source.poll_all()
        node.poll(35)
        assert node.open_rules() == set()


def test_c21_the_index_of_a_lost_gpu_is_reused() -> None:
    """Readings follow the UUID: the GPU that moved to index 1 inherits nothing from the one that was there."""
    with rig(3) as node:
        lost, moved = node.driver.gpus[1], node.driver.gpus[2]
        assert lost.ecc is not None
        lost.ecc.corrected_volatile = lost.ecc.uncorrected_volatile = 5_000_000
        node.driver.reload()
        node.poll(35)
        node.driver.remove(lost, at_once=True)
        node.source.end()
        node.driver.clients = 0
        node.source = node.new_source()  # the agent starts anew
        node.poll(35)
        assert node.open_rules() == {("gpu-lost", gpu(lost.uuid))}
        assert node.engine.series.value("gpu_ecc_corrected_volatile_total", gpu(moved.uuid)) == 0


def test_c22_what_a_card_does_not_support_is_unknown_and_quiet() -> None:
    """No fault, one line of the log a question and no more, not asked again; temperature is judged as ever."""
    def desktop(driver: SimulatedDriver) -> None:
        card = driver.gpus[0]
        card.ecc = card.ecc_mode = card.remap = card.sram_threshold = card.fabric = card.recovery_action = None
        card.memory_temperature, card.links, card.name = None, [], b"NVIDIA GeForce RTX 4090"

    with rig(1, prepare=desktop) as node:
        node.poll(35)
        said = list(node.warnings)
        node.driver.calls.clear()
        node.poll(65)
        assert node.open_rules() == set()
        assert node.warnings == said
        assert len(said) == len(set(said))
        assert node.driver.calls["nvmlDeviceGetSramEccErrorStatus"] == 0
        for signal in ("gpu_ecc_uncorrected_volatile_total", "gpu_row_remap_pending", "gpu_recovery_action",
                       "gpu_memory_temperature_celsius"):
            assert node.engine.series.value(signal, node.device(0)) is None
        node.driver.gpus[0].temperature = 88
        node.poll(12)
        assert node.open_rules() == {("gpu-hot", node.device(0))}


@pytest.mark.parametrize("function", [None, "nvmlDeviceGetTemperatureV"])
def test_c24_a_call_hangs(function: str | None) -> None:
    """The GPU is told as stalled within two seconds; the others go on; one thread stays out and no more."""
    with rig() as node:
        hang = node.driver.gpus[2].hang(function)
        node.poll(2)
        assert node.open_rules() == {("gpu-driver-stalled", node.device(2))}
        assert node.engine.intent().faults[0].severity == "critical"
        threads = node.threads()
        node.driver.gpus[0].temperature = 60
        node.poll(3)
        assert node.engine.series.value("gpu_temperature_celsius", node.device(0)) == 60
        assert node.engine.series.value("gpu_temperature_celsius", node.device(2)) is None
        assert (node.threads(), hang.stuck) == (threads, 1)
        node.driver.gpus[2].heal()
        node.poll(6)
        assert node.open_rules() == set()


def test_c24_a_gpu_that_hangs_while_it_is_listed_is_not_lost() -> None:
    """Its identity does not come back either: it is stalled, it stays in the list, and it recovers."""
    with rig() as node:
        node.driver.gpus[2].hang()
        for _ in range(3):
            node.source.poll_all()
            node.poll(2)
        assert node.open_rules() == {("gpu-driver-stalled", node.device(2))}
        node.driver.gpus[2].heal()
        node.poll(8)
        assert node.open_rules() == set()
        assert node.engine.series.value("gpu_count", NODE) == 4


def test_c24_a_gpu_that_hangs_when_the_agent_starts() -> None:
    """The others are read; the one that hangs is not called lost, however often it is asked for."""
    with rig(prepare=lambda driver: (driver.gpus[1].hang(), None)[1]) as node:
        for _ in range(3):
            node.source.poll_all()
            node.poll(2)
        assert {rule for rule, _ in node.open_rules()} <= {"gpu-driver-stalled"}
        assert node.engine.series.value("gpu_temperature_celsius", node.device(0)) == 35


def test_c24_a_restart_while_it_hangs_clears_nothing() -> None:
    """The next agent has not heard from that GPU: what stands, stands until it answers."""
    with rig() as node:
        node.driver.gpus[2].hang()
        node.poll(2)
        node.source.end()
        node.source = node.new_source()
        node.poll(5)
        assert ("gpu-driver-stalled", node.device(2)) in node.open_rules()
        assert {rule for rule, _ in node.open_rules()} == {"gpu-driver-stalled"}


def test_c24_a_line_of_the_kernel_log_meanwhile() -> None:
    """A 79 of another GPU, 20 s into the hang, is told in the same step."""
    with rig(8) as node:
        node.driver.gpus[2].hang()
        node.poll(20)
        node.kernel_says(f"NVRM: Xid (PCI:{node.driver.gpus[5].pci[:-2]}): 79, GPU has fallen off the bus.")
        assert node.open_rules() >= {("gpu-driver-stalled", node.device(2)), ("gpu-lost", node.device(5))}


@pytest.mark.parametrize("code", [
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_UNKNOWN])
def test_c25a_the_driver_does_not_open(code: int) -> None:
    """Blindness is a condition of nodeguard's own, for software to mend, never a fault of a GPU; it ends by itself."""
    with rig() as node:
        node.driver.fail("nvmlInitWithFlags", code)
        node.driver.reload()
        node.poll(15)
        (fault,) = node.engine.intent().faults
        assert (fault.rule, fault.action, fault.effect) == ("nodeguard-source-down", "fix_software", "condition")
        assert node.engine.intent().taint is None
        assert node.engine.series.value("gpu_temperature_celsius", node.device(0)) is None
        node.driver.heal("nvmlInitWithFlags")
        node.poll(60)
        assert node.open_rules() == set()
        assert node.engine.series.value("gpu_temperature_celsius", node.device(0)) == 35


def test_c25b_a_driver_that_comes_late_after_boot_is_nothing() -> None:
    """For five minutes after boot a driver is still being installed: no condition, and then it is read."""
    with rig(boot=20.0) as node:
        node.driver.unload(force=True)
        node.poll(220)
        assert node.told == []
        node.driver.load()
        node.poll(35)
        assert node.open_rules() == set()
        assert node.engine.series.value("gpu_temperature_celsius", node.device(0)) == 35


def test_c25d_one_gpu_that_could_not_be_initialised() -> None:
    """NVML does not open for any; the kernel log names the one that is suspect."""
    with rig() as node:
        node.driver.fail("nvmlInitWithFlags", pynvml.NVML_ERROR_UNKNOWN)
        node.driver.reload()
        node.kernel_says(f"NVRM: GPU {node.driver.gpus[1].pci}: RmInitAdapter failed! (0x62:0x40:2192)")
        node.poll(15)
        assert node.open_rules() == {
            ("nodeguard-source-down", NODE), ("gpu-driver-init-failed", node.device(1))}
