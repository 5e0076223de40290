"""What the mlx5 driver prints to the kernel log, as events.

One call per kernel record; a foreign record costs one substring test. Texts: kernel
drivers/net/ethernet/mellanox/mlx5/core/events.c (port module, temperature, slot power), core/cmd.c (refused
commands), core/en_main.c (``Link up`` of a network interface), and the RDMA driver's ``Port: 1 Link DOWN``.
"""

import re
from collections.abc import Mapping

from nodeguard.model.device import NODE, Device, pci_address, pcie, rdma_port
from nodeguard.model.sample import Attribute, Event, Told

SIGNAL = "rdma_driver_message"
LONGEST_TEXT = 300
"""Characters of a line kept for people."""

_NOTHING = Told()
_FLAGS = re.ASCII
_HEAD = re.compile(
    r"(?:kernel:\s*)?(?:\[[^\[\]\n]{1,40}\]\s*)?"
    r"(?:mlx5_core\s+(?P<pci>[0-9a-fA-F:.]{4,20}?)(?:\s+(?P<name>[\w.@-]{1,32}))?:|infiniband\s+(?P<hca>mlx5_\w{1,24}):)"
    r"\s+", _FLAGS)
_CALLER = re.compile(r"[a-z]\w{1,60}:\d{1,6}:(?:\(pid \d{1,10}\):)?\s*", _FLAGS)
"""``mlx5_cmd_out_err:838:(pid 1441871): ``, before a message of level warning or worse."""
_PORT = re.compile(r"Port:\s+(?P<port>\d{1,3})\s+Link\s+(?P<state>DOWN|ACTIVE)\b", _FLAGS)
_NETDEV = re.compile(r"Link (?P<state>down|up)\b", _FLAGS)
_SLOT_POWER = re.compile(r"Detected insufficient power on the PCIe slot(?:\s*\((?P<watts>\d{1,5})W\))?", _FLAGS)
_MODULE = re.compile(r"Port module event\[error\]:\s+module\s+(?P<module>\d{1,4}),\s+(?:[^,\n]{1,60},\s+)?"
                     r"(?P<error>[^,\n]{1,80}?)\s*\.?\s*\Z", _FLAGS)
_SENSORS = re.compile(r"High temperature on sensors with bit set\b", _FLAGS)
_REFUSED = re.compile(r"(?:mlx5_cmd_\w+\S*\s+)?ACCESS_REG\(0x805\).{0,80}?\bfailed\b", _FLAGS)

HOT_MODULE = "high temperature"


class MellanoxKernelLog:
    """Parser of mlx5 lines; remembers nothing. Never raises, whatever the text."""

    def feed(self, text: str, stamp: float | None) -> Told | None:
        """What one record tells. ``text``: unescaped message; ``stamp``: seconds since boot. None: not the driver's."""
        if "mlx5" not in text:
            return None
        head = _HEAD.match(text)
        if head is None:
            return None
        line = text.partition("\n")[0]
        body = line[head.end():]
        caller = _CALLER.match(body)
        found = _read(body if caller is None else body[caller.end():], head)
        if found is None:
            return _NOTHING
        device, attributes = found
        return Told(events=(Event(SIGNAL, device, attributes, stamp, line[:LONGEST_TEXT]),))

    def state(self) -> dict[str, object]:
        """See :class:`nodeguard.sources.kmsg_records.LineParser`."""
        return {}

    def restore(self, state: Mapping[str, object]) -> None:
        """See :class:`nodeguard.sources.kmsg_records.LineParser`."""


Found = tuple[Device, dict[str, Attribute]]


def _read(body: str, head: re.Match[str]) -> Found | None:
    slot = pci_address(head["pci"]) if head["pci"] else None
    device = NODE if slot is None else pcie(slot)
    name = head["hca"] or head["name"]
    if (port := _PORT.match(body)) is not None:
        kind = "link_down" if port["state"] == "DOWN" else "link_up"
        return (rdma_port(name, int(port["port"])) if name else device), {"kind": kind}
    if name and (netdev := _NETDEV.match(body)) is not None:
        return device, {"kind": f"netdev_{netdev['state']}", "netdev": name}
    if (power := _SLOT_POWER.match(body)) is not None:
        return device, {"kind": "slot_power", **({"watts": int(power["watts"])} if power["watts"] else {})}
    if _SENSORS.match(body):
        return device, {"kind": "high_temperature"}
    if _REFUSED.match(body):
        return device, {"kind": "access_register"}
    return _module(body, device)


def _module(body: str, device: Device) -> Found | None:
    module = _MODULE.match(body)
    if module is None:
        return None
    error = module["error"].strip().lower()
    kind = "module_high_temperature" if error == HOT_MODULE else "module_error"
    return device, {"kind": kind, "module": int(module["module"]), "error": error}
