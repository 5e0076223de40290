"""How long a GPU's fault takes to be on the Node together with the pods that hold that GPU."""

import json
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from nodeguard.kube.api import Api, Object
from nodeguard.sim.node import SimulatedNode
from nodeguard.sim.timeline import Watcher, annotation

_APART = 2.2
"""Seconds between faults: the node writer's burst must not run out (two writes a fault, one a second)."""


class Named(NamedTuple):
    """The faults that were made."""

    milliseconds: list[float]
    """From the kernel line until a watcher saw the fault with its pods."""
    early: int
    """Faults that a watcher saw without their pods first, which means: every pod of the node."""


def give_out(node: SimulatedNode) -> Path:
    """Let the kubelet have given each GPU to a pod of its own; the kubelet's root."""
    kubelet = Path(node.settings["kubelet_root"])
    (kubelet / "device-plugins").mkdir(parents=True)
    entries = []
    for number, uuid in enumerate(node.uuids):
        pod = f"aaaaaaaa-0000-4000-8000-{number:012}"
        (kubelet / "pods" / pod).mkdir(parents=True)
        entries.append({"PodUID": pod, "ContainerName": "c", "ResourceName": "nvidia.com/gpu",
                        "DeviceIDs": {"0": [uuid]}})
    (kubelet / "device-plugins/kubelet_internal_checkpoint").write_text(
        json.dumps({"Data": {"PodDeviceEntries": entries}}))
    return kubelet


def break_all(api: Api, node: SimulatedNode) -> Named:
    """An uncontained memory error of one GPU after the other; the agent is running."""
    watcher = Watcher(api, node.name)
    watcher.start()
    named = Named([], 0)
    for slot, uuid in zip(node.slots, node.uuids, strict=True):
        time.sleep(_APART)
        began = time.monotonic()
        node.log.xid(slot, 95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No", 7062, "python3")
        told = watcher.wait_for(partial(_fault, uuid), after=began)
        with_pods = watcher.wait_for(partial(_pods, uuid), after=began)
        if with_pods is None:
            raise RuntimeError(f"not seen within 10 s: the pods of {uuid}")
        named.milliseconds.append((with_pods - began) * 1000)
        named = named._replace(early=named.early + (told != with_pods))
    watcher.stop()
    return named


def _fault(uuid: str, node: Object) -> Object:
    faults = json.loads(annotation(node) or "{}").get("faults", ())
    return next((one for one in faults if one["device"] == f"gpu/{uuid}"), {})


def _pods(uuid: str, node: Object) -> object:
    return _fault(uuid, node).get("pods")
