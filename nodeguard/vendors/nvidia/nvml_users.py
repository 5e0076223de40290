"""Who computes on a GPU: processes, and the MIG instances in which they run.

With MIG on, nvmlProcessInfo_t of the whole GPU names each process's GPU instance and compute instance, to a caller with
the rights for it; without MIG, or without the rights, both numbers have all bits set (nvml.h).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from nodeguard.model.device import Device, mig
from nodeguard.vendors.nvidia.nvml_device import Invoke
from nodeguard.vendors.nvidia.nvml_errors import REFUSALS, CallError, Code
from nodeguard.vendors.nvidia.nvml_events import NO_INSTANCE

_HOLES = frozenset({Code.NOT_FOUND, Code.INVALID_ARGUMENT})
"""A MIG index that no instance has: they are not contiguous (nvml.h, nvmlDeviceGetMigDeviceHandleByIndex)."""


class Process(NamedTuple):
    """A process that computes."""

    pid: int
    """On the host."""
    device: Device
    """The MIG instance that it runs in, where NVML tells; else the GPU."""


@dataclass(frozen=True, slots=True)
class Users:
    """What computes on a GPU now."""

    processes: tuple[Process, ...] = ()
    """By number."""
    instances: Mapping[str, Device] | None = None
    """The GPU's MIG instances by UUID (``MIG-…``), under which the kubelet gives them out; None: NVML does not tell."""


def users_of(invoke: Invoke, handle: Any, device: Device) -> Users:
    """Ask for both. CallError: the processes cannot be had."""
    running = invoke("nvmlDeviceGetComputeRunningProcesses", handle)
    processes = {Process(int(one.pid), _place(device, one.gpuInstanceId, one.computeInstanceId)) for one in running}
    return Users(tuple(sorted(processes)), _instances(invoke, handle, device))


def _place(device: Device, gpu_instance: int | None, compute_instance: int | None) -> Device:
    if gpu_instance is None or gpu_instance == NO_INSTANCE:
        return device
    return mig(device, gpu_instance, None if compute_instance == NO_INSTANCE else compute_instance)


def _instances(invoke: Invoke, handle: Any, device: Device) -> dict[str, Device] | None:
    found: dict[str, Device] = {}
    try:
        for index in range(_places(invoke, handle)):
            instance = _instance(invoke, handle, index)
            if instance is not None:
                found[str(invoke("nvmlDeviceGetUUID", instance))] = mig(
                    device, int(invoke("nvmlDeviceGetGpuInstanceId", instance)),
                    int(invoke("nvmlDeviceGetComputeInstanceId", instance)))
    except CallError:
        return None
    return found


def _places(invoke: Invoke, handle: Any) -> int:
    try:
        return int(invoke("nvmlDeviceGetMaxMigDeviceCount", handle))
    except CallError as error:
        if error.code in REFUSALS:  # a GPU, or a driver, that knows no MIG
            return 0
        raise


def _instance(invoke: Invoke, handle: Any, index: int) -> Any:
    try:
        return invoke("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
    except CallError as error:
        if error.code in _HOLES:
            return None
        raise
