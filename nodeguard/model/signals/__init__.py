"""The catalogue of signals: every kind of measurement that rules, recordings and metrics speak of.

Names follow the Prometheus conventions; the same name is the rule's word, the recording's key and, with the
prefix ``nodeguard_``, the exported metric. To add a signal: one row in the file of its area, and the source that
reads it.
"""

from collections.abc import Mapping
from types import MappingProxyType

from nodeguard.model.signals import agent, gpu, host, pcie, rdma
from nodeguard.model.signals.signal import Kind, Signal

__all__ = ["SIGNALS", "Kind", "Signal"]

SIGNALS: Mapping[str, Signal] = MappingProxyType({
    signal.name: signal for area in (gpu, pcie, rdma, host, agent) for signal in area.SIGNALS})
