"""GPUs as doctor sees them: what the PCI bus shows, what NVML lists, and what the operator expects."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from nodeguard.app.doctor_finding import Finding
from nodeguard.app.doctor_nvml import Doctor, Opened, of_gpus
from nodeguard.vendors.nvidia import nvml_library
from nodeguard.vendors.nvidia.nvml_errors import NvmlError

_OURS = frozenset({None, "nvidia"})
"""Kernel drivers under which NVML should list a GPU; None: bound to none, which is a fault."""
_PASSED_THROUGH = "vfio-pci"

OnBus = Mapping[str, str | None]
"""PCI address → kernel driver."""


def on_the_bus(bus: OnBus | None, sys_root: Path) -> Iterator[Finding]:
    """GPUs on the PCI bus, and who drives them."""
    if bus is None:
        yield Finding("PCI bus", "blind", f"{sys_root}/bus/pci/devices cannot be read: a GPU that leaves the bus is "
                      "not missed", "mount sysfs there, or check --sys-root")
        return
    yield Finding("PCI bus", "ok", f"{_number(len(bus))} of NVIDIA on the bus")
    by_driver: dict[str | None, list[str]] = {}
    for pci, driver in sorted(bus.items()):
        by_driver.setdefault(driver, []).append(pci)
    for driver, slots in by_driver.items():
        shown = ", ".join(slots)
        if driver is None:
            yield Finding("driver", "blind", f"bound to no kernel driver: {shown}", "load the NVIDIA driver (modprobe "
                          "nvidia), and look at the kernel log if it refuses them")
        elif driver == _PASSED_THROUGH:
            yield Finding("driver", "ok", f"passed through to virtual machines ({driver}) and left alone: {shown}")
        elif driver not in _OURS:
            yield Finding("driver", "blind", f"bound to {driver}, which NVML does not know: {shown}",
                          "unload it and load the NVIDIA driver")


def expectation(bus: OnBus | None, expected: int | None) -> Iterator[Finding]:
    """Whether as many GPUs are here as the operator says."""
    if expected is None:
        yield Finding("GPU count", "skipped", "no expected count set: a GPU that was never here since the node booted "
                      "cannot be missed", "say how many this node has with --expect-gpus")
    elif bus is not None and len(bus) < expected:
        yield Finding("GPU count", "blind", f"{_number(len(bus))} on the bus, {expected} expected",
                      "reseat or replace what is missing, or correct --expect-gpus")
    elif bus is not None:
        yield Finding("GPU count", "ok", f"{_number(len(bus))} on the bus, {expected} expected")


class Gpus:
    """Everything about NVML, with what the bus shows to compare it with."""

    def __init__(self, bus: OnBus | None, library: Path | None, sys_root: Path, proc_root: Path, *,
                 poll_deadline: float) -> None:
        self._bus, self._library, self._deadline = bus, library, poll_deadline
        self._sys_root, self._proc_root = sys_root, proc_root
        self._ours = None if bus is None else {pci for pci, driver in bus.items() if driver in _OURS}

    def check(self, doctor: Doctor) -> Iterator[Finding]:
        """Open NVML, compare, look at every GPU, and close it."""
        opened = doctor.open()
        try:
            if isinstance(opened, Opened):
                yield self._is_open(opened)
                yield from self._compare(opened)
                yield from of_gpus(doctor.look(opened.listing.gpus), self._proc_root, self._deadline)
            else:
                yield self._closed(opened)
        finally:
            doctor.close()

    def _closed(self, error: NvmlError | None) -> Finding:
        if error is None:
            return Finding("NVML", "blind", "it does not answer: the driver hangs", "look at the kernel log (NVRM, and "
                           "tasks that hang); the node needs a reboot if it stays so")
        if self._ours is not None and not self._ours:
            return Finding("NVML", "skipped", f"it is not there ({error.word}), and neither is a GPU for it")
        loaded = _text(self._sys_root / "module/nvidia/version")
        kernel = f"kernel module {loaded}" if loaded else "the kernel module nvidia is not loaded"
        return Finding("NVML", "blind", f"{error.word}: {error} (library: {self._found()}; {kernel})",
                       "GPUs are watched by the kernel log alone until then; the agent opens NVML again by itself")

    def _found(self) -> str:
        if self._library is None:
            return "left to the dynamic linker"
        found = nvml_library.find(self._library)
        return f"none at {self._library}" if found is None else str(found)

    def _is_open(self, opened: Opened) -> Finding:
        took = ", ".join(f"{call} {ms:.1f} ms" for call, ms in opened.milliseconds.items())
        version = opened.version or "of an unknown version"
        return Finding("NVML", "ok", f"driver {version}, library {opened.library or self._found()} ({took})")

    def _compare(self, opened: Opened) -> Iterator[Finding]:
        listing = opened.listing
        for index in opened.hung:
            yield Finding("GPU", "blind", f"index {index} does not answer: its driver calls hang",
                          "look at the kernel log (NVRM)")
        for index, word in listing.failed.items():
            yield Finding("GPU", "blind", f"index {index} cannot be had: {word}", "look at the kernel log (NVRM)")
        listed = {one.pci for one in listing.gpus}
        missing = sorted((self._ours or set()) - listed)
        if missing:
            yield Finding("GPU list", "blind", f"on the bus and not in NVML's list: {', '.join(missing)}",
                          "look at the kernel log for these addresses; reset them, or reboot the node")
        elif self._ours is None:
            yield Finding("GPU list", "skipped", f"NVML lists {_number(listing.count)}; no bus to compare with")
        else:
            yield Finding("GPU list", "ok", f"NVML lists {_number(listing.count)}, as the bus does")


def _number(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
