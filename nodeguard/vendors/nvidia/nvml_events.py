"""What an NVML event means. Pure: numbers from the event set, as the driver or a recording gives them.

Event types: nvml.h ``nvmlEventType…``; an event of type Xid carries the number (999: unknown), and instance numbers
of 0xFFFFFFFF mean that no MIG instance is concerned.
"""

from nodeguard.model.device import gpu, mig
from nodeguard.model.sample import Attribute, Event, Told
from nodeguard.vendors.nvidia.xids import xid_class

DOUBLE_BIT = 0x2
XID = 0x8
UNAVAILABLE = 0x4000
RECOVERY_ACTION = 0x8000
NO_INSTANCE = 0xFFFFFFFF

XID_LOST = 79
XID_RECOVERY = 154


def told_of(uuid: str, kind: int, data: int, gpu_instance: int, compute_instance: int) -> Told:
    """The events of one NVML event; nothing for a type that no rule is about."""
    device = gpu(uuid)
    if gpu_instance != NO_INSTANCE:
        device = mig(device, gpu_instance, None if compute_instance == NO_INSTANCE else compute_instance)
    if kind == XID:
        attributes: dict[str, Attribute] = {"code": data, "class": xid_class(data)}
        events = [Event("gpu_xid", device, attributes)]
        if data == XID_LOST:
            events.append(Event("gpu_lost", gpu(uuid), {"cause": "xid", "code": data}))
        # 154 is the state's own change: the kernel log and the recovery action itself tell its value
        return Told(events=() if data == XID_RECOVERY else tuple(events))
    if kind == DOUBLE_BIT:
        return Told(events=(Event("gpu_ecc_double_bit_event", device),))
    if kind == UNAVAILABLE:
        return Told(events=(Event("gpu_unavailable_event", device),))
    # nvml.h defines the data of Xid events only: what a recovery action changed to is for the next poll to read
    return Told()
