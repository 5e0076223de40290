"""Signals of RDMA ports."""

from nodeguard.model.signals.signal import Signal

_PORT = ("rdma_port",)


def _port_counter(file: str, bits: int | None, text: str) -> Signal:
    return Signal(f"rdma_{file}_total", "counter", _PORT, ("rdma",), text, bits=bits)


SIGNALS: tuple[Signal, ...] = (
    Signal("rdma_port_state", "state", _PORT, ("rdma",), "Logical state of the port.",
           states=("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")),
    Signal("rdma_port_phys_state", "state", _PORT, ("rdma",), "Physical state of the port.",
           states=("Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery",
                   "Phy Test")),
    Signal("rdma_port_rate_gbps", "gauge", _PORT, ("rdma",), "Rate of the port in gigabits a second."),
    # widths: kernel drivers/infiniband/core/sysfs.c PORT_PMA_ATTR; these stop at their maximum
    _port_counter("link_downed", 8, "Times the link went down."),
    _port_counter("link_error_recovery", 8, "Times the link recovered from an error."),
    _port_counter("symbol_error", 16, "Symbol errors."),
    _port_counter("port_rcv_errors", 16, "Packets received with an error."),
    _port_counter("port_rcv_remote_physical_errors", 16, "Packets marked bad by the far end."),
    _port_counter("port_rcv_switch_relay_errors", 16, "Packets that a switch could not relay."),
    _port_counter("port_rcv_constraint_errors", 8, "Packets received against a constraint."),
    _port_counter("port_xmit_constraint_errors", 8, "Packets not sent because of a constraint."),
    _port_counter("port_xmit_discards", 16, "Packets discarded before sending."),
    _port_counter("local_link_integrity_errors", 4, "Local link integrity errors."),
    _port_counter("excessive_buffer_overrun_errors", 4, "Buffer overruns."),
    _port_counter("VL15_dropped", 16, "Management packets dropped."),
    _port_counter("port_xmit_wait", 32, "Ticks with data waiting to be sent: congestion, never a fault."),
    _port_counter("port_xmit_data", None, "Data sent, in units of 4 bytes."),
    _port_counter("port_rcv_data", None, "Data received, in units of 4 bytes."),
)
