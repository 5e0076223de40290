"""Signals of RDMA ports."""

from collections.abc import Mapping

from nodeguard.model.signals.signal import Signal

_PORT = ("rdma_port",)
_READ = ("rdma",)

MESSAGE_ATTRIBUTES = ("kind", "module", "error", "watts", "netdev")

COUNTERS: Mapping[str, tuple[int | None, str]] = {
    # widths: kernel drivers/infiniband/core/sysfs.c PORT_PMA_ATTR; these stop at their maximum
    "link_downed": (8, "Times the link went down."),
    "link_error_recovery": (8, "Times the link recovered from an error."),
    "symbol_error": (16, "Symbol errors."),
    "port_rcv_errors": (16, "Packets received with an error."),
    "port_rcv_remote_physical_errors": (16, "Packets marked bad by the far end."),
    "port_rcv_switch_relay_errors": (16, "Packets that a switch could not relay."),
    "port_rcv_constraint_errors": (8, "Packets received against a constraint."),
    "port_xmit_constraint_errors": (8, "Packets not sent because of a constraint."),
    "port_xmit_discards": (16, "Packets discarded before sending."),
    "local_link_integrity_errors": (4, "Local link integrity errors."),
    "excessive_buffer_overrun_errors": (4, "Buffer overruns."),
    "VL15_dropped": (16, "Management packets dropped."),
    "port_xmit_wait": (32, "Ticks with data waiting to be sent: congestion, never a fault."),
    # IB_PMA_PORT_COUNTERS_EXT: 64 bits
    "port_xmit_data": (None, "Data sent, in units of 4 bytes."),
    "port_rcv_data": (None, "Data received, in units of 4 bytes."),
}
"""Files of ``ports/N/counters``: width in bits (None: 64) and meaning."""

HW_COUNTERS: Mapping[str, tuple[int | None, str]] = {
    # the adapter's Q counters are 32 bits wide (kernel drivers/infiniband/hw/mlx5/counters.c, mlx5_ib_query_q_counters)
    "out_of_sequence": (32, "Packets received out of order."),
    "out_of_buffer": (32, "Packets dropped because no receive buffer was posted."),
    "packet_seq_err": (32, "Sequence errors told by the far end: packets sent again."),
    "implied_nak_seq_err": (32, "Responses that implied a lost packet."),
    "local_ack_timeout_err": (32, "Acknowledgements that did not come in time: packets sent again."),
    "rnr_nak_retry_err": (32, "Packets sent again because the far end had no receive buffer."),
    "roce_adp_retrans": (32, "Adaptive retransmissions (RoCE)."),
    "roce_adp_retrans_to": (32, "Adaptive retransmissions that timed out (RoCE)."),
    "req_cqe_error": (32, "Requests that completed with an error."),
    "resp_cqe_error": (32, "Responses that completed with an error."),
}
"""Files of ``ports/N/hw_counters``."""

NEVER_A_FAULT = ("port_xmit_wait",)
"""Counters whose maximum says nothing of a fault: congestion."""

ROLES = ("fabric", "managed", "host", "bond", "virtual")
"""What a port is for: see ``rdma_port_role``."""


def _port(name: str, text: str, *, states: tuple[str, ...] = (), labels: tuple[str, ...] = ()) -> Signal:
    return Signal(name, "state", _PORT, _READ, text, attributes=labels, states=states)


def _counters(files: Mapping[str, tuple[int | None, str]]) -> tuple[Signal, ...]:
    return tuple(Signal(f"rdma_{file}_total", "counter", _PORT, _READ, text, bits=bits)
                 for file, (bits, text) in files.items())


SIGNALS: tuple[Signal, ...] = (
    _port("rdma_port_state", "Logical state of the port.",
          states=("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")),
    _port("rdma_port_phys_state", "Physical state of the port.",
          states=("Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery",
                  "Phy Test")),
    Signal("rdma_port_rate_gbps", "gauge", _PORT, _READ, "Rate of the port in gigabits a second."),
    Signal("rdma_port_rate_usual_gbps", "gauge", _PORT, _READ,
           "Highest rate the port was seen active at, or the rate of its active peers, in gigabits a second."),
    Signal("rdma_port_rate_expected_gbps", "gauge", _PORT, ("agent",),
           "Rate that the operator says the port has, in gigabits a second."),
    Signal("rdma_port_expected", "state", _PORT, ("agent",), "The operator says that the port is in use, 0 or 1.",
           steady=True),
    _port("rdma_port_present", "The port is there, 0 or 1.", labels=("link_layer",)),
    _port("rdma_port_role",
          "What the port is for: fabric, or one of those not judged: managed (the firmware's own), host (default "
          "route), bond (member of a bond), virtual (a virtual function).", states=ROLES),
    _port("rdma_port_seen_active", "The port was ACTIVE since the agent began to look, 0 or 1."),
    Signal("rdma_port_peers_active_ratio", "gauge", _PORT, _READ,
           "Share of the ports of the same model and place that are ACTIVE, 0 to 1; unknown with fewer than three."),
    _port("rdma_counter_saturated", "A counter stopped at its maximum, 0 or 1.", labels=("counter",)),
    _port("rdma_link_downed_saturated", "link_downed stopped at its maximum and counts no more, 0 or 1."),
    Signal("rdma_port_count", "gauge", ("node",), _READ, "RDMA ports that are there, virtual ones included."),
    Signal("rdma_driver_message", "event", ("rdma_port", "pcie", "node"), ("kmsg",),
           "The mlx5 driver printed a known line.", MESSAGE_ATTRIBUTES),
    *_counters(COUNTERS),
    *_counters(HW_COUNTERS),
)
