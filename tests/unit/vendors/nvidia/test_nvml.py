"""Opening NVML and listing GPUs: real pynvml above the simulated driver."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from nodeguard.model.device import mig
from nodeguard.sim.driver import MigInstance, SimulatedDriver, SimulatedGpu
from nodeguard.sim.driver.gpu import NO_INSTANCE
from nodeguard.vendors.nvidia.nvml import Nvml
from nodeguard.vendors.nvidia.nvml_errors import NvmlError
from nodeguard.vendors.nvidia.nvml_library import NAME, find
from nodeguard.vendors.nvidia.nvml_users import Process, Users


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    """Four GPUs."""
    with SimulatedDriver(4) as installed:
        yield installed


@pytest.fixture
def nvml(driver: SimulatedDriver) -> Nvml:
    """NVML, open."""
    opened = Nvml()
    opened.open()
    return opened


def test_gpus_are_listed_by_identity(driver: SimulatedDriver, nvml: Nvml) -> None:
    """UUID, PCI address in the normal form, name and index; the driver's version beside it."""
    listing = nvml.gpus()
    assert listing.count == 4
    assert [(gpu.index, gpu.uuid, gpu.pci) for gpu in listing.gpus] == [
        (index, gpu.uuid, gpu.pci) for index, gpu in enumerate(driver.gpus)]
    assert listing.gpus[0].name == "NVIDIA H100 80GB HBM3"
    assert listing.gpus[0].device == f"gpu/{driver.gpus[0].uuid}"
    assert nvml.driver_version() == "580.65.06"


@pytest.mark.parametrize(("code", "word", "sentence"), [
    (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "DRIVER_NOT_LOADED", "the NVIDIA driver is not loaded"),
    (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "LIB_RM_VERSION_MISMATCH", "are of different versions"),
    (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "LIBRARY_NOT_FOUND", "was not found"),
    (pynvml.NVML_ERROR_UNKNOWN, "UNKNOWN", "unknown error"),
    (pynvml.NVML_ERROR_NO_PERMISSION, "NO_PERMISSION", "refuses this user"),
    (pynvml.NVML_ERROR_IRQ_ISSUE, "ERROR_11", "NVML returned ERROR_11"),
])
def test_what_keeps_nvml_shut_is_said_in_one_sentence(
        driver: SimulatedDriver, code: int, word: str, sentence: str) -> None:
    """C25: a word for decisions and a sentence for people; the next opening may work."""
    nvml = Nvml()
    driver.fail("nvmlInit", code)
    with pytest.raises(NvmlError, match=sentence) as caught:
        nvml.open()
    assert caught.value.word == word
    driver.heal()
    nvml.open()
    assert nvml.gpus().count == 4


def test_no_gpu_at_all_is_a_listing_not_an_error(driver: SimulatedDriver) -> None:
    """Every GPU gone from the bus: NVML opens and counts none, so that their absence can be told."""
    for gpu in driver.gpus:
        driver.remove(gpu)
    nvml = Nvml()
    nvml.open()
    assert nvml.gpus().count == 0


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN])
def test_a_handle_that_fails_costs_only_its_gpu(driver: SimulatedDriver, nvml: Nvml, code: int) -> None:
    """C19b: seven of eight are listed, and the known one that is left over is the lost one."""
    known = nvml.gpus().gpus
    driver.gpus[2].lose(code)
    listing = nvml.gpus()
    assert [gpu.index for gpu in listing.gpus] == [0, 1, 3]
    assert listing.count == 4
    assert listing.lost == (known[2],)
    assert list(listing.failed) == [2]


def test_a_gpu_that_was_never_seen_is_not_guessed(driver: SimulatedDriver, nvml: Nvml) -> None:
    """At the agent's start a failing handle has no identity: it is only counted."""
    driver.gpus[2].fail("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_UNKNOWN)
    listing = nvml.gpus()
    assert (len(listing.gpus), listing.lost, dict(listing.failed)) == (3, (), {2: "UNKNOWN"})


def test_more_gpus_gone_than_handles_failing_are_not_told_apart(driver: SimulatedDriver, nvml: Nvml) -> None:
    """One left the count and another's handle fails: which is which is not known, so none is called lost."""
    nvml.gpus()
    driver.remove(driver.gpus[1], at_once=True)
    driver.gpus[2].lose()
    listing = nvml.gpus()
    assert (listing.count, len(listing.gpus), listing.lost) == (3, 2, ())
    assert list(listing.failed.values()) == ["GPU_IS_LOST"]


def test_who_left_before_is_not_lost_later(driver: SimulatedDriver, nvml: Nvml) -> None:
    """A GPU that a whole listing did not hold is forgotten: the next failing handle is of one that was in it."""
    nvml.gpus()
    driver.remove(driver.gpus[0], at_once=True)
    nvml.gpus()
    driver.gpus[2].lose()
    assert [gpu.uuid for gpu in nvml.gpus().lost] == [driver.gpus[2].uuid]


def test_a_listing_can_go_past_a_gpu_that_hangs(driver: SimulatedDriver, nvml: Nvml) -> None:
    """C24: each index apart; one that has not come back is neither listed nor lost nor failed."""
    with driver.gpus[1].hang():
        answers = {index: None if index == 1 else nvml.identify(index) for index in range(nvml.count())}
        listing = nvml.listing(answers)
        assert (listing.count, [gpu.index for gpu in listing.gpus]) == (4, [0, 2, 3])
        assert (listing.lost, dict(listing.failed)) == ((), {})
        assert nvml.fast(listing.gpus[1]).samples
    assert len(nvml.gpus().gpus) == 4


def test_an_index_that_is_used_again_is_another_gpu(driver: SimulatedDriver, nvml: Nvml) -> None:
    """C21: after a loss and a new opening the UUID tells who it is; readings go to the right one."""
    nvml.gpus()
    driver.gpus[2].temperature = 77
    driver.remove(driver.gpus[1])
    nvml.close()
    nvml.open()
    moved = nvml.gpus().gpus[1]
    assert (moved.index, moved.uuid) == (1, driver.gpus[2].uuid)
    values = {sample.signal: sample.value for sample in nvml.fast(moved).samples}
    assert values["gpu_temperature_celsius"] == 77


def test_names_may_be_bytes_that_are_no_text(driver: SimulatedDriver) -> None:
    """C22: a name that cannot be decoded costs the name only."""
    with SimulatedDriver([SimulatedGpu(name=b"\xff\xfe"), SimulatedGpu.consumer(pci="0000:2c:00.0")]):
        nvml = Nvml()
        nvml.open()
        assert [gpu.name for gpu in nvml.gpus().gpus] == ["", "NVIDIA GeForce RTX 4090"]


def test_a_driver_that_goes_away_under_us_is_opened_again(driver: SimulatedDriver, nvml: Nvml) -> None:
    """After a reload every question says that NVML must be opened; then the same GPUs answer."""
    gpu = nvml.gpus().gpus[0]
    driver.reload("590.1")
    for ask in (nvml.gpus, nvml.driver_version, lambda: nvml.fast(gpu), lambda: nvml.slow(gpu),
                lambda: nvml.processes(gpu), lambda: nvml.users(gpu)):
        with pytest.raises(NvmlError, match="opened again") as caught:
            ask()
        assert caught.value.word == "UNINITIALIZED"
    nvml.open()
    with pytest.raises(NvmlError, match="not listed"):
        nvml.fast(gpu)
    assert nvml.gpus().gpus[0] == gpu
    assert nvml.fast(gpu).samples


def test_a_closed_nvml_lets_the_gpu_be_reset(driver: SimulatedDriver, nvml: Nvml) -> None:
    """Quiesce: an open client makes a reset fail, a closed one does not; closing twice is allowed."""
    assert driver.reset_gpu(driver.gpus[0]) == pynvml.NVML_ERROR_IN_USE
    nvml.close()
    nvml.close()
    assert driver.reset_gpu(driver.gpus[0]) == pynvml.NVML_SUCCESS


def test_processes_of_a_gpu(driver: SimulatedDriver, nvml: Nvml) -> None:
    """Their numbers, or None where the driver does not tell."""
    gpu = nvml.gpus().gpus[0]
    assert nvml.processes(gpu) == ()
    driver.gpus[0].processes = [4242, 17]
    assert nvml.processes(gpu) == (17, 4242)
    driver.missing = frozenset({"nvmlDeviceGetComputeRunningProcesses_v3"})
    assert nvml.processes(gpu) is None


@pytest.mark.parametrize("place", [
    NAME, f"usr/lib/x86_64-linux-gnu/{NAME}", f"run/nvidia/driver/usr/lib64/{NAME}"])
def test_the_library_is_found_below_a_root(tmp_path: Path, place: str) -> None:
    """In the directory itself or where a driver root or the host keeps it; links are resolved."""
    library = tmp_path / place
    library.parent.mkdir(parents=True, exist_ok=True)
    real = library.with_name("libnvidia-ml.so.580.65.06")
    real.touch()
    library.symlink_to(real.name)
    assert find(tmp_path) == find(library) == real
    real.unlink()
    assert find(tmp_path) is None


def test_a_library_that_is_not_there_or_is_none_is_said(tmp_path: Path) -> None:
    """The path that was given is in the sentence."""
    (tmp_path / NAME).write_text("no library")
    for path in (tmp_path / "nothing", tmp_path / NAME):
        with pytest.raises(NvmlError, match=str(path)) as caught:
            Nvml(path).open()
        assert caught.value.word == "LIBRARY_NOT_FOUND"


def test_a_named_library_is_put_below_pynvml(driver: SimulatedDriver, tmp_path: Path) -> None:
    """The file is loaded in place of what pynvml held; one that is not NVML has none of its functions.

    Any shared library of this interpreter will do: what counts is that pynvml asks that file.
    """
    library = next(Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines()
                   if "/libc" in line and ".so" in line)
    (tmp_path / NAME).symlink_to(library)
    nvml = Nvml()
    nvml.open()
    with pytest.raises(NvmlError) as caught:
        Nvml(tmp_path).open()
    assert caught.value.word == "FUNCTION_NOT_FOUND"
    assert isinstance(pynvml.nvmlLib, ctypes.CDLL)


def test_users_of_a_gpu_in_mig_mode(driver: SimulatedDriver, nvml: Nvml) -> None:
    """Processes with the instances that they run in, and the instances by UUID; places without one are passed over."""
    gpu, card = nvml.gpus().gpus[0], driver.gpus[0]
    assert nvml.users(gpu) == Users((), {})
    card.mig_mode, card.mig = 1, [MigInstance(5, 0, "MIG-aaaa"), MigInstance(9, 1, "MIG-bbbb")]
    card.processes, card.placed = [30, 10, 20], {10: (5, 0), 20: (9, NO_INSTANCE)}
    five, nine = mig(gpu.device, 5, 0), mig(gpu.device, 9, 1)
    assert nvml.users(gpu) == Users(
        (Process(10, five), Process(20, mig(gpu.device, 9)), Process(30, gpu.device)),
        {"MIG-aaaa": five, "MIG-bbbb": nine})


def test_instances_that_the_driver_does_not_tell(driver: SimulatedDriver, nvml: Nvml) -> None:
    """A driver without MIG has none; an error on the way is not the same as none."""
    gpu, card = nvml.gpus().gpus[0], driver.gpus[0]
    driver.missing = frozenset({"nvmlDeviceGetMaxMigDeviceCount"})
    assert nvml.users(gpu) == Users((), {})
    driver.missing = frozenset()
    card.mig_mode = 1
    card.fail("nvmlDeviceGetMigDeviceHandleByIndex", pynvml.NVML_ERROR_UNKNOWN)
    assert nvml.users(gpu) == Users((), None)
