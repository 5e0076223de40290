"""NVML's event set: what the driver tells by itself."""

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple

from nodeguard.vendors.nvidia.nvml_device import Invoke
from nodeguard.vendors.nvidia.nvml_errors import CallError, Code, NvmlError
from nodeguard.vendors.nvidia.nvml_events import DOUBLE_BIT, RECOVERY_ACTION, UNAVAILABLE, XID

WANTED = XID | DOUBLE_BIT | UNAVAILABLE | RECOVERY_ACTION
"""Event types that rules are about."""


class NvmlEvent(NamedTuple):
    """One event, as :func:`nodeguard.vendors.nvidia.nvml_events.told_of` takes it."""

    uuid: str
    """Of the physical GPU; empty where NVML did not say which."""
    kind: int
    """The event's type, one bit."""
    data: int
    """The Xid of an Xid event, 999 if the driver does not know it. nvml.h promises nothing for other types."""
    gpu_instance: int
    """All bits set where no MIG instance is concerned."""
    compute_instance: int


class EventWatch:
    """An event set with GPUs registered. One thread waits, and the same thread closes."""

    def __init__(self, invoke: Invoke, handles: Mapping[str, Any]) -> None:
        self._invoke = invoke
        self._uuids = {_address(handle): uuid for uuid, handle in handles.items()}
        self.registered: dict[str, int] = {}
        """UUID → types that will be told; a GPU that refused is absent."""
        try:
            self._set = invoke("nvmlEventSetCreate")
        except CallError as error:
            raise NvmlError(error.code, "NVML gives no event set") from error
        for uuid, handle in handles.items():
            self._register(uuid, handle)

    def wait(self, timeout: float) -> NvmlEvent | None:
        """The next event, or None after ``timeout`` seconds.

        Raises :class:`NvmlError` when the set is of no more use; with the word ``GPU_IS_LOST`` NVML does not say
        which GPU, so every one is to be read.
        """
        try:
            data = self._invoke("nvmlEventSetWait_v2", self._set, max(0, int(timeout * 1000)))
        except CallError as error:
            if error.code == Code.TIMEOUT:
                return None
            raise NvmlError(error.code, "waiting for NVML's events") from error
        return NvmlEvent(
            self._uuid(data.device), int(data.eventType), int(data.eventData), int(data.gpuInstanceId),
            int(data.computeInstanceId))

    def close(self) -> None:
        """Give the set back. Never raises."""
        try:
            self._invoke("nvmlEventSetFree", self._set)
        except CallError:
            return

    def _register(self, uuid: str, handle: Any) -> None:
        try:
            kinds = self._invoke("nvmlDeviceGetSupportedEventTypes", handle) & WANTED
            if kinds:
                self._invoke("nvmlDeviceRegisterEvents", handle, kinds, self._set)
                self.registered[uuid] = kinds
        except CallError:
            return

    def _uuid(self, handle: Any) -> str:
        known = self._uuids.get(_address(handle))
        if known is not None:
            return known
        try:
            return str(self._invoke("nvmlDeviceGetUUID", handle))
        except CallError:
            return ""


def _address(handle: Any) -> int | None:
    """Handles are pointers: two of them mean one GPU if they point to one place."""
    return ctypes.cast(handle, ctypes.c_void_p).value
