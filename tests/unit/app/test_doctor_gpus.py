"""Doctor on GPUs: real pynvml above a simulated driver, real files for the bus."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pynvml

from nodeguard.app.doctor_finding import Finding
from nodeguard.app.doctor_gpus import Gpus, expectation, on_the_bus
from nodeguard.app.doctor_nvml import Doctor
from nodeguard.model.clock import SystemClock
from nodeguard.sim.driver import SimulatedDriver, SimulatedGpu
from nodeguard.sim.node import SimulatedNode
from nodeguard.vendors.nvidia.nvml import Nvml
from nodeguard.vendors.nvidia.pci import Bus

PATIENCE = 0.3  # real seconds, of which only a hung call costs all


@dataclass
class Rig:
    node: SimulatedNode
    driver: SimulatedDriver
    findings: list[Finding] = field(default_factory=list)

    def look(self, *, library: Path | None = None, expected: int | None = None) -> dict[str, list[str]]:
        """Verdicts by check."""
        bus = Bus(self.node.sys_root).gpus()
        doctor = Doctor(Nvml(library), SystemClock(), PATIENCE, self.node.root / "maps")
        gpus = Gpus(bus, library, self.node.sys_root, self.node.proc_root, poll_deadline=0.9)
        self.findings = [*on_the_bus(bus, self.node.sys_root), *expectation(bus, expected), *gpus.check(doctor)]
        found: dict[str, list[str]] = {}
        for one in self.findings:
            found.setdefault(one.check, []).append(one.verdict)
        return found

    def says(self, check: str) -> str:
        return "\n".join(one.says for one in self.findings if one.check == check)

    @property
    def blind(self) -> str:
        return "\n".join(one.says for one in self.findings if one.verdict == "blind")


@contextmanager
def rig(gpus: int = 2, prepare: Callable[[SimulatedDriver], None] = lambda _: None) -> Iterator[Rig]:
    with SimulatedNode("gpu-1", gpus) as node, SimulatedDriver.at(node.slots, node.uuids) as driver:
        prepare(driver)
        node.attach(driver)
        yield Rig(node, driver)


def test_a_healthy_node() -> None:
    """Everything is seen and said: versions, counts, events, costs; and the driver is given back."""
    with rig() as made:
        found = made.look(expected=2)
        assert {word for words in found.values() for word in words} == {"ok"}
        assert "driver 580.65.06" in made.says("NVML")
        assert made.says("GPU list") == "NVML lists 2 GPUs, as the bus does"
        assert made.says("NVML events") == "told by every GPU: Xid, double bit error, unavailable, recovery action"
        assert "fast tier" in made.says("NVML cost")
        assert made.driver.clients == 0


def test_c20_a_gpu_that_the_driver_does_not_list() -> None:
    """On the bus and not in NVML: named by its address. One that is passed through is no fault."""
    def hide(driver: SimulatedDriver) -> None:
        driver.gpus[2].fail("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_UNKNOWN)
        driver.gpus[3].fail("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_UNKNOWN)
        driver.gpus[3].driver_name = "vfio-pci"

    with rig(4, hide) as made:
        made.look()
        assert f"on the bus and not in NVML's list: {made.node.slots[2]}" in made.blind
        assert made.node.slots[3] not in made.blind
        assert made.node.slots[3] in made.says("driver")


def test_c20_fewer_than_expected() -> None:
    """Only the operator can know of a GPU that nothing shows."""
    with rig() as made:
        assert made.look(expected=4)["GPU count"] == ["blind"]
        assert made.says("GPU count") == "2 GPUs on the bus, 4 expected"


def test_c20_no_expected_count() -> None:
    """Nothing to raise, but said: it was not evaluated."""
    with rig() as made:
        assert made.look()["GPU count"] == ["skipped"]
        assert "no expected count set" in made.says("GPU count")


def test_other_kernel_drivers() -> None:
    """None, and one that NVML does not know, are blind spots that name the address."""
    def bind(driver: SimulatedDriver) -> None:
        driver.gpus[0].driver_name = ""
        driver.gpus[1].driver_name = "nouveau"

    with rig(3, bind) as made:
        assert made.look()["driver"] == ["blind", "blind"]
        assert f"bound to no kernel driver: {made.node.slots[0]}" in made.blind
        assert f"nouveau, which NVML does not know: {made.node.slots[1]}" in made.blind


def test_the_driver_is_not_loaded() -> None:
    """Its word, what to do, and that the kernel module is not there."""
    with rig() as made:
        made.driver.unload()
        assert made.look()["NVML"] == ["blind"]
        assert made.says("NVML").startswith("DRIVER_NOT_LOADED: ")
        assert "kernel module nvidia is not loaded" in made.says("NVML")


def test_library_and_kernel_module_of_two_versions(tmp_path: Path) -> None:
    """A mismatch shows both: the file that was found and the module that is loaded."""
    with rig() as made:
        (tmp_path / "libnvidia-ml.so.580.65.06").touch()
        (tmp_path / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.65.06")
        module = made.node.sys_root / "module/nvidia"
        module.mkdir(parents=True)
        (module / "version").write_text("575.57.08\n")
        made.driver.fail("nvmlInit", pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        bus = Bus(made.node.sys_root).gpus()
        gpus = Gpus(bus, tmp_path, made.node.sys_root, made.node.proc_root, poll_deadline=0.9)
        (found,) = gpus.check(Doctor(Nvml(), SystemClock(), PATIENCE, made.node.root / "maps"))
        assert found.verdict == "blind"
        assert "LIB_RM_VERSION_MISMATCH" in found.says
        assert "libnvidia-ml.so.580.65.06; kernel module 575.57.08" in found.says


def test_no_library(tmp_path: Path) -> None:
    """Where it was looked for; without a GPU for it, that is nothing to worry about."""
    with rig() as made:
        assert made.look(library=tmp_path)["NVML"] == ["blind"]
        assert str(tmp_path) in made.says("NVML")
    with rig(0) as made:
        (made.node.sys_root / "bus/pci/devices").mkdir(parents=True)
        assert made.look(library=tmp_path)["NVML"] == ["skipped"]


def test_no_bus() -> None:
    """NVML is still asked; there is nothing to compare it with."""
    with rig() as made:
        bus = Bus(made.node.root / "none").gpus()
        gpus = Gpus(bus, None, made.node.sys_root, made.node.proc_root, poll_deadline=0.9)
        assert next(iter(on_the_bus(bus, made.node.root / "none"))).verdict == "blind"
        found = {one.check: one.verdict for one in gpus.check(Doctor(Nvml(), SystemClock(), PATIENCE, Path("none")))}
        assert (found["NVML"], found["GPU list"]) == ("ok", "skipped")


def test_a_driver_that_hangs_from_the_start() -> None:
    """Doctor ends, and says so."""
    with rig() as made, made.driver.hang():
        assert made.look()["NVML"] == ["blind"]
        assert "does not answer" in made.says("NVML")


def test_one_gpu_hangs_and_one_is_lost() -> None:
    """Each is named; the third is looked at as ever."""
    with rig(3) as made:
        made.driver.gpus[0].hang("nvmlDeviceGetFieldValues")
        made.driver.gpus[1].fail("nvmlDeviceGetFieldValues", pynvml.NVML_ERROR_GPU_IS_LOST)
        found = made.look()
        made.driver.gpus[0].release_all()
        assert f"{made.node.uuids[0]} does not answer" in made.blind
        assert f"{made.node.uuids[1]} is lost" in made.blind
        assert found["signals"] == ["ok"]


def test_a_handle_that_hangs() -> None:
    """The others are listed and looked at."""
    with rig() as made, made.driver.gpus[1].hang("nvmlDeviceGetHandleByIndex"):
        made.look()
        assert "index 1 does not answer" in made.blind
        assert "all 1 GPUs" in made.says("signals")


def test_c22_what_a_card_does_not_support() -> None:
    """Is named once, and is no blind spot."""
    with SimulatedNode("card", 1) as node, SimulatedDriver([SimulatedGpu.consumer(pci=node.slots[0])]) as driver:
        node.attach(driver)
        made = Rig(node, driver)
        found = made.look()
        assert made.blind == ""
        assert "gpu_recovery_action" in made.says("signals")
        assert "gpu_temperature_celsius" not in made.says("signals")
        assert found["NVML events"] == ["ok"]
        assert "kernel log" in made.says("NVML events")


def test_calls_that_fail_otherwise() -> None:
    """Are counted by their word."""
    with rig(1) as made:
        made.driver.gpus[0].fail("nvmlDeviceGetUtilizationRates", pynvml.NVML_ERROR_UNKNOWN)
        assert made.look()["GPU"] == ["warning"]
        assert "UNKNOWN" in made.says("GPU")


def test_processes_of_another_pid_namespace() -> None:
    """NVML's numbers lead nowhere: hostPID is missing."""
    with rig(1) as made:
        made.driver.gpus[0].processes.append(4711)
        assert made.look()["processes"] == ["warning"]
        (made.node.proc_root / "4711").mkdir()
        assert "processes" not in made.look()


def test_the_library_that_is_mapped() -> None:
    """Its file is named."""
    with rig(1) as made:
        (made.node.root / "maps").write_text(
            "7f00-7f01 r--p 00000000 08:01 1 /usr/lib/libc.so.6\n"
            "7f02-7f03 r--p 00000000 08:01 2 /usr/lib64/libnvidia-ml.so.580.65.06\n")
        made.look()
        assert "library /usr/lib64/libnvidia-ml.so.580.65.06 (" in made.says("NVML")
