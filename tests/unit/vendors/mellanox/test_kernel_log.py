"""The mlx5 driver's kernel lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.device import NODE
from nodeguard.model.sample import Event
from nodeguard.vendors.mellanox.kernel_log import LONGEST_TEXT, MellanoxKernelLog

HEAD = "mlx5_core 0000:ab:00.0"


def tell(line: str) -> Event | None:
    """The event of a line of the driver; None: it tells nothing."""
    told = MellanoxKernelLog().feed(line, 12.5)
    assert told is not None
    return told.events[0] if told.events else None


@pytest.mark.parametrize(("line", "device", "attributes"), [
    (f"{HEAD} mlx5_5: Port: 1 Link DOWN", "rdma_port/mlx5_5/1", {"kind": "link_down"}),
    (f"{HEAD} mlx5_5: Port: 2 Link ACTIVE", "rdma_port/mlx5_5/2", {"kind": "link_up"}),
    ("infiniband mlx5_0: Port: 1 Link DOWN", "rdma_port/mlx5_0/1", {"kind": "link_down"}),
    (f"[   71.5] {HEAD} mlx5_5: Port: 1 Link DOWN", "rdma_port/mlx5_5/1", {"kind": "link_down"}),
    ("mlx5_core 0000:0b:00.1 enp1s0f0np0: Link up", "pcie/0000:0b:00.0",
     {"kind": "netdev_up", "netdev": "enp1s0f0np0"}),
    (f"{HEAD} eth2: Link down", "pcie/0000:ab:00.0", {"kind": "netdev_down", "netdev": "eth2"}),
    (f"{HEAD}: mlx5_pcie_event:301:(pid 10): Detected insufficient power on the PCIe slot (27W).",
     "pcie/0000:ab:00.0", {"kind": "slot_power", "watts": 27}),
    (f"{HEAD}: Port module event[error]: module 3, Cable error, Bus stuck (I2C or data shorted)",
     "pcie/0000:ab:00.0", {"kind": "module_error", "module": 3, "error": "bus stuck (i2c or data shorted)"}),
    (f"{HEAD}: Port module event[error]: module 0, Cable error, High Temperature",
     "pcie/0000:ab:00.0", {"kind": "module_high_temperature", "module": 0, "error": "high temperature"}),
    (f"{HEAD}: temp_warn:170:(pid 0): High temperature on sensors with bit set 0 1",
     "pcie/0000:ab:00.0", {"kind": "high_temperature"}),
    (f"{HEAD}: mlx5_cmd_out_err:838:(pid 1): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2)",
     "pcie/0000:ab:00.0", {"kind": "access_register"}),
])
def test_known_lines(line: str, device: str, attributes: dict[str, object]) -> None:
    """Each names its device as far as the line does."""
    event = tell(line)
    assert event is not None
    assert (event.signal, event.device, event.attributes) == ("rdma_driver_message", device, attributes)
    assert (event.stamp, event.text) == (12.5, line)


@pytest.mark.parametrize("line", [
    f"{HEAD}: firmware version: 28.39.1002",
    f"{HEAD}: Port module event: module 0, Cable unplugged",
    f"{HEAD}: mlx5_pcie_event:306:(pid 10): PCIe slot advertised sufficient power (75W).",
    f"{HEAD}: mlx5_cmd_out_err:838:(pid 1): CREATE_QP(0x500) op_mod(0x0) failed, err(-22)",
    f"{HEAD} mlx5_5: Port: 1 Link",
])
def test_other_lines_of_the_driver_tell_nothing(line: str) -> None:
    """They are the driver's own, so no other parser need look."""
    assert tell(line) is None


@pytest.mark.parametrize("line", [
    "usb 1-1: reset", "python3[12]: mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
])
def test_foreign_lines_are_not_its_own(line: str) -> None:
    """The driver's name must come first: what a program calls itself is no driver."""
    assert MellanoxKernelLog().feed(line, None) is None


def test_an_address_that_is_none_is_the_node() -> None:
    """The kind is believed, the device is not guessed."""
    event = tell("mlx5_core ffff:ff:ff.9: Detected insufficient power on the PCIe slot")
    assert event is not None
    assert (event.device, event.attributes) == (NODE, {"kind": "slot_power"})


_PIECES = st.sampled_from([
    "mlx5_core ", "0000:ab:00.0", " mlx5_5", ": ", "Port: ", "1", " Link DOWN", "Port module event[error]: module 0, ",
    "Cable error", ", ", "ACCESS_REG(0x805)", " failed", "\n", "infiniband ", "temp_warn:170:(pid 0): ",
    "High temperature on sensors with bit set"])


@given(st.one_of(st.text(), st.lists(st.one_of(_PIECES, st.text(max_size=5)), max_size=20).map("".join)))
def test_any_text_raises_nothing(text: str) -> None:
    """An event names a device, its text is cut, and there is at most one."""
    told = MellanoxKernelLog().feed(text, 1.0)
    for event in () if told is None else told.events:
        assert len(event.text) <= LONGEST_TEXT
        assert event.device == NODE or event.device.startswith(("pcie/", "rdma_port/"))
