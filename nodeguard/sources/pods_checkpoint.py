"""Which pods the kubelet gave which GPU, from the checkpoint file of its device manager. Pure.

``{"Data": {"PodDeviceEntries": [{"PodUID", "ContainerName", "ResourceName", "DeviceIDs", "AllocResp"}],
"RegisteredDevices": {…}}, "Checksum": n}``. ``DeviceIDs`` is a list up to Kubernetes 1.19 and an object of NUMA node →
list from 1.20 on (pkg/kubelet/cm/devicemanager/checkpoint). The checksum is over Go's own printing of the structure, so
nobody but the kubelet can make it; the file is replaced whole, so it is not needed either.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeguard.model.device import Device, gpu, mig
from nodeguard.model.errors import SourceError

_VENDOR = "nvidia.com/"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_GPU = re.compile(rf"GPU-({_UUID})(?![0-9a-fA-F])")
"""A whole GPU; a shared one has a suffix, such as ``::3`` (NVIDIA's device plugin) or ``-3`` (others')."""
_MIG = re.compile(rf"MIG-GPU-({_UUID})/([0-9]{{1,4}})/([0-9]{{1,4}})(?![0-9])")
"""A MIG instance up to driver 450."""
_MIG_UUID = re.compile(rf"MIG-({_UUID})(?![0-9a-fA-F])")
"""A MIG instance of later drivers: of which GPU it is, only NVML can tell."""


@dataclass(frozen=True, slots=True)
class Allotted:
    """What the file says about GPUs."""

    pods: Mapping[Device, frozenset[str]] = field(default_factory=dict)
    """UIDs of the pods that were given a device."""
    instances: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The same by UUID (``MIG-…``), for MIG instances whose names do not tell the GPU."""
    complete: bool = True
    """Every other entry about GPUs could be placed: a device that is no key was given to nobody."""
    malformed: int = 0
    """Entries that are not as the kubelet writes them."""


def allotted(text: str | bytes) -> Allotted:
    """Read the file. SourceError: it is no checkpoint."""
    try:
        entries = json.loads(text)["Data"]["PodDeviceEntries"]
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise SourceError("the kubelet's device checkpoint is not JSON with Data.PodDeviceEntries") from error
    if not isinstance(entries, list | None):
        raise SourceError("the kubelet's device checkpoint has PodDeviceEntries that are no list")
    pods: dict[Device, set[str]] = {}
    instances: dict[str, set[str]] = {}
    unplaced = malformed = 0
    for entry in entries or ():
        ids = _ids_of(entry)
        if ids is None:
            malformed += 1
            continue
        for name in ids:
            device, instance = _device(name), _MIG_UUID.match(name)
            if device is not None:
                pods.setdefault(device, set()).add(entry["PodUID"])
            elif instance is not None:
                instances.setdefault(f"MIG-{instance[1].lower()}", set()).add(entry["PodUID"])
            elif entry["ResourceName"].startswith(_VENDOR):
                unplaced += 1
    return Allotted({device: frozenset(uids) for device, uids in pods.items()},
                    {uuid: frozenset(uids) for uuid, uids in instances.items()},
                    complete=not unplaced and not malformed, malformed=malformed)


def _ids_of(entry: Any) -> list[str] | None:
    """An entry's device IDs; None: it is malformed."""
    if not isinstance(entry, dict) or not entry.get("PodUID"):
        return None
    if not all(isinstance(entry.get(key), str) for key in ("PodUID", "ResourceName")):
        return None
    ids = entry.get("DeviceIDs")
    lists: Iterable[Any] = ids.values() if isinstance(ids, dict) else (ids,)
    if not all(isinstance(one, list | None) for one in lists):
        return None
    found = [name for one in lists for name in one or ()]
    return found if all(isinstance(name, str) for name in found) else None


def _device(name: str) -> Device | None:
    whole, part = _GPU.match(name), _MIG.match(name)
    if part is not None:
        return mig(gpu(f"GPU-{part[1].lower()}"), int(part[2]), int(part[3]))
    return None if whole is None else gpu(f"GPU-{whole[1].lower()}")
