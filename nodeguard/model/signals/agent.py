"""Signals of the agent itself and of what it can see."""

from nodeguard.model.signals.signal import Signal

SIGNALS: tuple[Signal, ...] = (
    Signal("kmsg_gap", "event", ("node",), ("kmsg",),
           "Kernel log records were overwritten before they could be read.", ("lost",)),
    Signal("source_up", "state", ("node",), ("agent",), "The source can see, 0 or 1.", attributes=("source",),
           steady=True),
    Signal("rules_invalid", "state", ("node",), ("agent",), "The newest rule files are refused, 0 or 1.", steady=True),
    Signal("state_unwritable", "state", ("node",), ("agent",), "The agent cannot keep its state, 0 or 1.", steady=True),
    Signal("source_stale", "state", ("node",), ("exporter",), "What the source says has not changed for long, 0 or 1.",
           attributes=("source",)),
    Signal("source_stalled_seconds", "gauge", ("node", "gpu", "rdma_port"), ("agent",),
           "How long a call of the source has been out without an answer.", attributes=("source",)),
)
