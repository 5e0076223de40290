"""NVML's return codes in nodeguard's words. Pure: the numbers are those of nvml.h ``nvmlReturn_t``."""

from enum import IntEnum

from nodeguard.model.errors import SourceError


class Code(IntEnum):
    """The return codes that nodeguard tells apart; any other is a plain error of that one call."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    ARGUMENT_VERSION_MISMATCH = 25
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


REFUSALS = frozenset({
    Code.NOT_SUPPORTED, Code.NO_PERMISSION, Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH})
"""This GPU, driver or user will get the same answer again: not asked any more until NVML is opened again."""

BLINDNESS = frozenset({
    Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.LIBRARY_NOT_FOUND, Code.LIB_RM_VERSION_MISMATCH})
"""About the driver as a whole, whichever call returned it: NVML must be opened again."""

_SENTENCES: dict[int, str] = {
    Code.UNINITIALIZED: "the NVIDIA driver was unloaded or reset below NVML; it will be opened again",
    Code.DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded; load it (lsmod should list nvidia), or wait for its "
                            "installer to finish",
    Code.LIBRARY_NOT_FOUND: "NVML (libnvidia-ml.so.1) was not found; run the pod with the nvidia runtime class, or "
                            "name the driver's directory with --nvml-library",
    Code.LIB_RM_VERSION_MISMATCH: "the NVML library and the loaded NVIDIA driver are of different versions; reload the "
                                  "driver or restart this pod so that both are of one version",
    Code.NO_PERMISSION: "NVML refuses this user; the agent must see the /dev/nvidia* devices",
    Code.UNKNOWN: "NVML reports an unknown error; the kernel log tells why (search it for NVRM)",
}


class CallError(Exception):
    """One call returned ``code``; what that means depends on the call."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    @property
    def word(self) -> str:
        """The code's name, as :func:`word` gives it."""
        return word(self.code)


class NvmlError(SourceError):
    """NVML as a whole does not answer. ``word`` says in one word what it is, for logs, metrics and decisions."""

    def __init__(self, code: int, where: str, detail: str = "") -> None:
        self.code = code
        """The return code."""
        self.word = word(code)
        """As in a recording: ``DRIVER_NOT_LOADED``, ``LIB_RM_VERSION_MISMATCH``, ``GPU_IS_LOST``…"""
        sentence = _SENTENCES.get(code, f"NVML returned {self.word}; it will be tried again")
        super().__init__(f"{where}: {sentence}{f' ({detail})' if detail else ''}")


def word(code: int) -> str:
    """The name of a return code without its prefix; a number that this list does not hold as ``ERROR_<number>``."""
    return Code(code).name if code in Code.__members__.values() else f"ERROR_{code}"
