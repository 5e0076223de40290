"""The object in place of the shared library: attributes with the C functions' names, as ctypes would give them."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pynvml

from nodeguard.sim.driver import events, fields
from nodeguard.sim.driver.abi import BadArgumentError, number, put, put_pointer, put_text
from nodeguard.sim.driver.events import EventSet
from nodeguard.sim.driver.gpu import SimulatedGpu
from nodeguard.sim.driver.handles import DeviceRef, pointer
from nodeguard.sim.driver.readings import FUNCTIONS

if TYPE_CHECKING:
    from nodeguard.sim.driver.driver import SimulatedDriver

_OK = int(pynvml.NVML_SUCCESS)
_INVALID = int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
_UNINITIALIZED = int(pynvml.NVML_ERROR_UNINITIALIZED)
_NOT_FOUND = int(pynvml.NVML_ERROR_NOT_FOUND)
_LOST = int(pynvml.NVML_ERROR_GPU_IS_LOST)

_MOST_INSTANCES = 7
"""Places that a GPU in MIG mode has, taken or not."""

_WITHOUT_OPENING = ("nvmlInitWithFlags", "nvmlInit_v2", "nvmlErrorString")


class CFunction:
    """One function. Attributes such as ``restype`` may be set, as on a ctypes function."""

    def __init__(self, library: "Library", name: str) -> None:
        self._library = library
        self._name = name

    def __call__(self, *arguments: Any) -> Any:
        """Call it, with arguments as ctypes takes them."""
        return self._library.enter(self._name, arguments)


class Library:
    """What pynvml takes for the loaded ``libnvidia-ml.so.1``."""

    def __init__(self, driver: "SimulatedDriver") -> None:
        self._driver = driver
        self._whole: dict[str, Callable[..., Any]] = {
            "nvmlInitWithFlags": self._init, "nvmlInit_v2": lambda: self._init(0),
            "nvmlShutdown": driver.shut, "nvmlErrorString": _error_string,
            "nvmlSystemGetDriverVersion": self._version, "nvmlSystemGetNVMLVersion": self._version,
            "nvmlDeviceGetCount_v2": lambda out: put(out, len(driver.visible)),
            "nvmlDeviceGetHandleByIndex_v2": self._by_index, "nvmlDeviceGetHandleByUUID": self._by_uuid,
            "nvmlEventSetCreate": self._create, "nvmlEventSetWait_v2": self._wait, "nvmlEventSetFree": self._free,
        }
        self._device: dict[str, Callable[..., int]] = {
            **{name: self._on_gpu(function) for name, function in FUNCTIONS.items()},
            "nvmlDeviceGetFieldValues": self._fields, "nvmlDeviceGetIndex": self._index,
            "nvmlDeviceGetMinorNumber": self._minor, "nvmlDeviceRegisterEvents": self._register,
            "nvmlDeviceGetMaxMigDeviceCount": lambda ref, out: put(
                out, max(len(ref.gpu.mig), _MOST_INSTANCES if ref.gpu.mig_mode else 0)),
            "nvmlDeviceGetMigDeviceHandleByIndex": self._mig, "nvmlDeviceGetUUID": _device_uuid,
            "nvmlDeviceIsMigDeviceHandle": lambda ref, out: put(out, int(ref.mig is not None)),
            "nvmlDeviceGetGpuInstanceId": lambda ref, out: put(out, ref.mig and ref.mig.gpu_instance),
            "nvmlDeviceGetComputeInstanceId": lambda ref, out: put(out, ref.mig and ref.mig.compute_instance),
        }

    def __getattr__(self, name: str) -> CFunction:
        known = name in self._whole or name in self._device
        if name.startswith("_") or not known or name in self._driver.missing:
            raise AttributeError(name)
        return CFunction(self, name)

    def enter(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """One call from the client: counted, perhaps blocked or failed, then done. Its CPU time is noted."""
        began = time.thread_time()
        try:
            return self._enter(name, arguments)
        finally:
            self._driver.spent(time.thread_time() - began)

    def _enter(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "nvmlErrorString":
            return _error_string(*arguments)
        self._driver.count(name)
        code = self._driver.check(name)
        if code == _OK and name in self._driver.missing:
            code = int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if code == _OK and not self._driver.clients and name not in _WITHOUT_OPENING:
            code = _UNINITIALIZED
        if code != _OK:
            return code
        try:
            return self._whole[name](*arguments) if name in self._whole else self._on_device(name, *arguments)
        except BadArgumentError:
            return _INVALID

    def _on_device(self, name: str, handle: Any, *arguments: Any) -> int:
        ref = self._driver.handles.device(handle)
        if ref is None:
            return _INVALID
        code = ref.gpu.check(name)
        # what happened while the call was blocked counts: an unloaded driver answers nobody
        if self._driver.handles.device(handle) is None:
            return _UNINITIALIZED
        return code or self._device[name](ref, *arguments)

    @staticmethod
    def _on_gpu(function: Callable[..., int]) -> Callable[..., int]:
        return lambda ref, *arguments: function(ref.gpu, *arguments)

    def _init(self, flags: Any) -> int:
        if not number(flags) & pynvml.NVML_INIT_FLAG_NO_GPUS and self._driver.loaded and not self._driver.bus:
            return int(pynvml.NVML_ERROR_GPU_NOT_FOUND)
        return self._driver.open()

    def _version(self, buffer: Any, length: Any) -> int:
        return put_text(buffer, length, self._driver.version)

    def _by_index(self, index: Any, out: Any) -> int:
        place = number(index)
        visible = self._driver.visible
        if place >= len(visible):
            return _INVALID
        return self._hand_out(visible[place], out, "nvmlDeviceGetHandleByIndex")

    def _by_uuid(self, uuid: Any, out: Any) -> int:
        wanted = uuid.value.decode()
        gpu = next((one for one in self._driver.visible if one.uuid == wanted), None)
        return _NOT_FOUND if gpu is None else self._hand_out(gpu, out, "nvmlDeviceGetHandleByUUID")

    def _hand_out(self, gpu: SimulatedGpu, out: Any, function: str) -> int:
        return gpu.check(function) or put_pointer(out, self._driver.handles.of_device(DeviceRef(gpu)))

    def _index(self, ref: DeviceRef, out: Any) -> int:
        visible = self._driver.visible
        return put(out, visible.index(ref.gpu)) if ref.gpu in visible else _LOST

    def _minor(self, ref: DeviceRef, out: Any) -> int:
        return put(out, self._driver.gpus.index(ref.gpu)) if ref.gpu in self._driver.gpus else _LOST

    def _fields(self, ref: DeviceRef, count: Any, values: Any) -> int:
        return fields.fill(ref.gpu, count, values, self._driver.newest_field)

    def _mig(self, ref: DeviceRef, index: Any, out: Any) -> int:
        instances = list(ref.gpu.mig)
        if number(index) >= len(instances):
            return _NOT_FOUND
        return put_pointer(out, self._driver.handles.of_device(DeviceRef(ref.gpu, instances[number(index)])))

    def _create(self, out: Any) -> int:
        return put_pointer(out, self._driver.handles.of_set(EventSet()))

    def _register(self, ref: DeviceRef, kinds: Any, handle: Any) -> int:
        found = self._driver.handles.event_set(handle)
        return _INVALID if found is None else found.register(ref.gpu, number(kinds))

    def _wait(self, handle: Any, data: Any, milliseconds: Any) -> int:
        found = self._driver.handles.event_set(handle)
        if found is None:
            return _INVALID
        event = found.wait(number(milliseconds) / 1000)
        if isinstance(event, int):
            return event
        device = pointer(self._driver.handles.of_device(DeviceRef(event.gpu)))
        return events.fill(data, event, device)

    def _free(self, handle: Any) -> int:
        found = self._driver.handles.forget_set(handle)
        if found is None:
            return _INVALID
        found.close()
        return _OK


def _device_uuid(ref: DeviceRef, buffer: Any, length: Any) -> int:
    return put_text(buffer, length, ref.gpu.uuid if ref.mig is None else ref.mig.uuid)


def _error_string(code: Any) -> bytes:
    return f"simulated error {number(code)}".encode()
