"""RDMA devices of a simulated node: what sysfs shows of them, and what can break.

Everything here is a patch: paths below ``/sys`` with their text, ``{"link": …}``, ``{"error": …}`` or None for gone,
which is what a recording's ``sysfs`` entry holds. :func:`apply` writes one below a directory; a file that must answer
with an error exists only in a recording.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

Value = str | Mapping[str, str] | None
Patch = dict[str, Value]

COMPUTE = tuple(f"mlx5_{number}" for number in range(8))
STORAGE = "mlx5_bond_0"
MANAGEMENT = "mlx5_9"
SPARE = "mlx5_10"
"""A port that was never cabled."""
VIRTUAL = ("mlx5_11", "mlx5_12")
SLOTS = {**{name: f"0000:{0x18 + 0x11 * number:02x}:00.0" for number, name in enumerate(COMPUTE)},
         STORAGE: "0000:e0:00.0", MANAGEMENT: "0000:e1:00.0", SPARE: "0000:e1:00.1",
         VIRTUAL[0]: "0000:e0:00.2", VIRTUAL[1]: "0000:e0:00.3"}
ROUTES = ("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"
          "eth9\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n"
          "bond0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\n")
"""For ``/proc/1/net/route``: the default route goes through the management port."""

_RATES = {400: "NDR", 200: "HDR", 100: "EDR", 10: "SDR"}
_MODELS = {"ConnectX-7": ("MT4129", "MT_0000000838", "0x1021"), "ConnectX-6 Dx": ("MT4125", "MT_0000000359", "0x101d")}
_COUNTERS = {"symbol_error": 0, "link_error_recovery": 0, "port_rcv_errors": 0, "port_xmit_discards": 3,
             "port_xmit_wait": 123456, "port_xmit_data": 9 * 10**12, "port_rcv_data": 8 * 10**12, "VL15_dropped": 0,
             "local_link_integrity_errors": 0, "excessive_buffer_overrun_errors": 0, "port_rcv_constraint_errors": 0,
             "port_xmit_constraint_errors": 0, "port_rcv_remote_physical_errors": 0, "port_rcv_switch_relay_errors": 0}
_HW_COUNTERS = {"out_of_sequence": 12, "out_of_buffer": 0, "packet_seq_err": 4, "implied_nak_seq_err": 0,
                "local_ack_timeout_err": 1, "rnr_nak_retry_err": 0, "roce_adp_retrans": 0, "roce_adp_retrans_to": 0,
                "req_cqe_error": 0, "resp_cqe_error": 0, "lifespan": 10}


def healthy_node() -> Patch:
    """Eight InfiniBand HCAs for training, a storage bond, a management NIC, a spare port and two virtual functions."""
    tree: Patch = {}
    for name in COMPUTE:
        tree |= hca(name) | up(name)
    tree |= hca(STORAGE, "ConnectX-6 Dx", "Ethernet", "eth8") | up(STORAGE, 200)
    tree |= {f"class/infiniband/{STORAGE}/device/net/eth8/master": {"link": "../../../../class/net/bond0"},
             "class/net/bond0/bonding/mode": "802.3ad 4"}
    tree |= hca(MANAGEMENT, "ConnectX-6 Dx", "Ethernet", "eth9") | up(MANAGEMENT, 100)
    tree |= hca(SPARE, "ConnectX-6 Dx", "Ethernet", "eth10") | disabled(SPARE)
    for name in VIRTUAL:
        tree |= hca(name, "ConnectX-6 Dx", "Ethernet") | disabled(name)
        tree |= {f"class/infiniband/{name}/device/physfn": {"link": f"../{SLOTS[STORAGE]}"}}
    return tree


def hca(name: str, model: str = "ConnectX-7", layer: str = "InfiniBand", netdev: str = "", *,
        slot: str | None = None) -> Patch:
    """A device with one port, its counters at work; its state comes from :func:`up` and its kin.

    ``slot``: its PCI address; None: that of :data:`SLOTS`.
    """
    hca_type, board, device = _MODELS[model]
    top, port = f"class/infiniband/{name}", _port(name)
    files: Patch = {
        f"{top}/device": {"link": f"../../../{slot or SLOTS[name]}"}, f"{top}/device/device": device,
        f"{top}/hca_type": hca_type, f"{top}/board_id": board, f"{port}/link_layer": layer}
    files |= {f"{port}/counters/{file}": str(value) for file, value in _COUNTERS.items()}
    files |= {f"{port}/hw_counters/{file}": str(value) for file, value in _HW_COUNTERS.items()}
    if netdev:
        files[f"{top}/device/net/{netdev}/operstate"] = "up"
    return {**files, **counter(name, "link_downed", 0)}


def up(name: str, gbps: int = 400) -> Patch:
    """The link is up."""
    return _states(name, "4: ACTIVE", "5: LinkUp") | slow(name, gbps)


def slow(name: str, gbps: int) -> Patch:
    """The link runs at another rate."""
    return {f"{_port(name)}/rate": f"{gbps} Gb/sec (4X {_RATES[gbps]})"}


def down(name: str) -> Patch:
    """The link is lost: the adapter looks for its far end, and an InfiniBand port falls to its lowest rate."""
    return _states(name, "1: DOWN", "2: Polling") | slow(name, 10)


def disabled(name: str) -> Patch:
    """No link, as an Ethernet port without a carrier shows it (kernel drivers/infiniband/hw/mlx5/main.c)."""
    return _states(name, "1: DOWN", "3: Disabled") | slow(name, 100)


def waiting(name: str) -> Patch:
    """The link is up, and no subnet manager has configured the port."""
    return _states(name, "2: INIT", "5: LinkUp")


def counter(name: str, file: str, value: int, directory: str = "counters") -> Patch:
    """A counter stands at ``value``."""
    return {f"{_port(name)}/{directory}/{file}": str(value)}


def saturated(name: str) -> Patch:
    """Counters at their maximum, as found on a card that was never cleared."""
    return counter(name, "port_xmit_discards", 65535) | counter(name, "excessive_buffer_overrun_errors", 15)


def gone(name: str) -> Patch:
    """The device is not there."""
    return {f"class/infiniband/{name}": None}


def refusing(name: str, state: str) -> Patch:
    """A function of the firmware's own: its counters answer EINVAL. For recordings only."""
    broken = {path: {"error": "EINVAL"} for path in hca(name) if "counters/" in path}
    return hca(name) | _states(name, state, "5: LinkUp" if "INIT" in state else "2: Polling") | slow(name, 10) | broken


def apply(root: Path, patch: Patch) -> None:
    """Write a patch below ``root``, the directory that plays ``/sys``."""
    for path, value in patch.items():
        file = root / path
        if value is None:
            shutil.rmtree(file, ignore_errors=True)
        elif isinstance(value, str):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")
        else:
            _link(file, value["link"])


def _link(file: Path, target: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.symlink_to(target)
    file.resolve().mkdir(parents=True, exist_ok=True)


def _port(name: str) -> str:
    return f"class/infiniband/{name}/ports/1"


def _states(name: str, state: str, phys: str) -> Patch:
    return {f"{_port(name)}/state": state, f"{_port(name)}/phys_state": phys}
