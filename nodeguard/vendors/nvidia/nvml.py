"""NVML behind typed doors: the one module that imports pynvml.

Every method may block for as long as the driver likes, so each is called in a worker that can be abandoned. Several
threads may read different GPUs at once; one GPU is read by one thread at a time.

Where the library comes from: ``library`` None leaves it to pynvml, which asks the dynamic linker for
``libnvidia-ml.so.1`` (the nvidia runtime class puts it there). A file is loaded as it is; in a directory (a driver
root such as ``/run/nvidia/driver``, the host's root, or a directory of libraries) the file is searched for. It is
handed to pynvml through ``pynvml.nvmlLib``, the name under which pynvml keeps what it loads. Symbolic links are
resolved at every :meth:`Nvml.open`, so a driver that was upgraded under a running agent is met with its own library;
through the linker that takes a restart of the pod.
"""

import ctypes
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pynvml

from nodeguard.model.device import pci_address
from nodeguard.vendors.nvidia import nvml_library, nvml_readings
from nodeguard.vendors.nvidia.nvml_device import Asker, Gpu, Listing, Memory, Reading, read
from nodeguard.vendors.nvidia.nvml_errors import BLINDNESS, CallError, Code, NvmlError
from nodeguard.vendors.nvidia.nvml_users import Users, users_of
from nodeguard.vendors.nvidia.nvml_watch import EventWatch

_WITHOUT_GPUS = 1
"""NVML_INIT_FLAG_NO_GPUS: opening does not fail where every GPU is gone, so that their absence can be told."""


class Nvml:
    """The driver of this node. Every method that asks it raises :class:`NvmlError` where NVML does not answer at all.

    What a GPU does not support is asked once per opening.
    """

    def __init__(self, library: Path | None = None) -> None:
        self._library = library
        self._loaded: Path | None = None
        self._handles: dict[str, Any] = {}
        self._memories: dict[str, Memory] = {}
        self._known: dict[str, Gpu] = {}

    def open(self) -> None:
        """Load the library and connect to the driver. The error's ``word`` tells why that failed."""
        self._handles = {}
        self._memories = {uuid: memory.reopened() for uuid, memory in self._memories.items()}
        self._load()
        try:
            _invoke("nvmlInitWithFlags", _WITHOUT_GPUS)
        except CallError as error:
            raise NvmlError(error.code, "NVML cannot be opened") from error

    def close(self) -> None:
        """Give the driver back, so that a GPU can be reset and the driver unloaded. Never raises."""
        self._handles = {}
        try:
            _invoke("nvmlShutdown")
        except CallError:
            return

    def driver_version(self) -> str | None:
        """The driver's version (``580.65.06``); None where it does not tell."""
        try:
            return _text(_invoke("nvmlSystemGetDriverVersion"))
        except CallError as error:
            _raise_if_blind(error, "version of the driver")
            return None

    def gpus(self) -> Listing:
        """Which GPUs there are. A GPU whose handle cannot be had costs only itself; one that hangs, the listing.

        To list past a GPU that hangs, call :meth:`count`, then :meth:`identify` in one worker per index, and put
        together what came back with :meth:`listing`.
        """
        return self.listing({index: self.identify(index) for index in range(self.count())})

    def count(self) -> int:
        """How many GPUs NVML counts."""
        try:
            return int(_invoke("nvmlDeviceGetCount"))
        except CallError as error:
            raise NvmlError(error.code, "GPUs cannot be counted") from error

    def identify(self, index: int) -> Gpu | str:
        """Who has this index now; the return code's word where the handle cannot be had."""
        handles = self._handles  # of this opening, however late the answer comes
        try:
            handle = _invoke("nvmlDeviceGetHandleByIndex", index)
            uuid = _text(_invoke("nvmlDeviceGetUUID", handle))
        except CallError as error:
            _raise_if_blind(error, f"GPU {index}")
            return error.word
        seen = self._known.get(uuid)
        gpu = Gpu(index, uuid, seen.pci if seen else _pci(handle), seen.name if seen else _name(handle))
        self._known[uuid] = gpu
        handles[uuid] = handle
        return gpu

    def listing(self, answers: Mapping[int, Gpu | str | None]) -> Listing:
        """A listing of what :meth:`identify` gave for every index; None: it has not come back."""
        gpus = tuple(one for one in answers.values() if isinstance(one, Gpu))
        failed = {index: one for index, one in answers.items() if isinstance(one, str)}
        listed = {one.uuid for one in gpus}
        gone = tuple(one for uuid, one in list(self._known.items()) if uuid not in listed)
        certain = len(gone) == len(failed) == len(answers) - len(gpus)
        if len(gpus) == len(answers):  # whole: who is not in it has left, and no later failure can be his
            self._known = {one.uuid: one for one in gpus}
        return Listing(len(answers), gpus, gone if certain else (), failed)

    def fast(self, gpu: Gpu) -> Reading:
        """The fast tier of this GPU: see :func:`nodeguard.vendors.nvidia.nvml_readings.fast`."""
        memory = self._memory(gpu)
        return read(self._asker(gpu, memory), memory, "fast", nvml_readings.fast)

    def slow(self, gpu: Gpu) -> Reading:
        """The slow tier of this GPU: see :func:`nodeguard.vendors.nvidia.nvml_readings.slow`."""
        memory = self._memory(gpu)
        return read(self._asker(gpu, memory), memory, "slow", nvml_readings.slow)

    def processes(self, gpu: Gpu) -> tuple[int, ...] | None:
        """Host process numbers that compute on this GPU; None where the driver does not tell. Not for a poll."""
        users = self.users(gpu)
        return None if users is None else tuple(sorted({one.pid for one in users.processes}))

    def users(self, gpu: Gpu) -> Users | None:
        """What computes on this GPU and its MIG instances; None where the driver does not tell. Not for a poll."""
        try:
            return users_of(_invoke, self._handle(gpu), gpu.device)
        except CallError as error:
            _raise_if_blind(error, str(gpu.device))
            return None

    def watch(self, gpus: Iterable[Gpu]) -> EventWatch:
        """An event set in which these GPUs are registered, each for the types that it supports."""
        return EventWatch(_invoke, {one.uuid: self._handle(one) for one in gpus})

    def _memory(self, gpu: Gpu) -> Memory:
        return self._memories.setdefault(gpu.uuid, Memory())

    def _asker(self, gpu: Gpu, memory: Memory) -> Asker:
        return Asker(_invoke, self._handle(gpu), gpu.device, memory)

    def _handle(self, gpu: Gpu) -> Any:
        handle = self._handles.get(gpu.uuid)
        if handle is None:
            raise NvmlError(Code.UNINITIALIZED, str(gpu.device), "it was not listed since NVML was opened")
        return handle

    def _load(self) -> None:
        if self._library is None:
            return
        path = nvml_library.find(self._library)
        if path is None:
            raise NvmlError(Code.LIBRARY_NOT_FOUND, f"no {nvml_library.NAME} at {self._library}")
        if path == self._loaded:
            return
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise NvmlError(Code.LIBRARY_NOT_FOUND, f"{path} cannot be loaded", str(error)) from error
        with pynvml.libLoadLock:
            pynvml.nvmlLib = library
            pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 # it holds the old library's functions
        self._loaded = path


def _invoke(function: str, *arguments: Any) -> Any:
    """Call pynvml's ``function``. Anything that it raises becomes a :class:`CallError`."""
    try:
        return getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError as error:
        raise CallError(error.value) from error
    except pynvml.NVMLLibraryMismatchError as error:
        raise CallError(Code.FUNCTION_NOT_FOUND) from error
    except UnicodeDecodeError as error:  # a name of bytes that are no UTF-8
        raise CallError(Code.UNKNOWN) from error


def _raise_if_blind(error: CallError, where: str) -> None:
    if error.code in BLINDNESS:
        raise NvmlError(error.code, where) from error


def _text(value: str | bytes) -> str:
    """NVML's strings: bytes or str, by version of the bindings."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _pci(handle: Any) -> str | None:
    try:
        info = _invoke("nvmlDeviceGetPciInfo", handle)
        return pci_address(_text(info.busId) or _text(info.busIdLegacy))
    except (CallError, UnicodeDecodeError):
        return None


def _name(handle: Any) -> str:
    try:
        return _text(_invoke("nvmlDeviceGetName", handle))
    except CallError:
        return ""
