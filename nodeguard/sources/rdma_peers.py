"""Ports compared with their peers: the same model, link layer, port number and PCI function."""

from collections import Counter
from collections.abc import Sequence

from nodeguard.model.sample import Sample
from nodeguard.sources.rdma_port import UP, Port
from nodeguard.sources.rdma_role import Model

FEWEST = 3
"""Peers that it takes to say anything: one other port is no rule."""

_COMMON = 0.7
"""Share of the active peers whose rate is the usual one."""


def compare(ports: Sequence[tuple[Model | None, Port]]) -> list[Sample]:
    """How many peers of each port are up, and at which rate the port should be, of what was seen."""
    groups: dict[tuple[Model, str, int], list[Port]] = {}
    for model, port in ports:
        if model is not None:
            groups.setdefault((model, port.link_layer, port.number), []).append(port)
    peers = {port.device: [other for other in group if other is not port]
             for group in groups.values() for port in group}
    samples = []
    for _, port in ports:
        others = peers.get(port.device, [])
        samples.append(Sample("rdma_port_peers_active_ratio", port.device, _active(others)))
        samples.append(Sample("rdma_port_rate_usual_gbps", port.device, _usual(port, others)))
    return samples


def _active(others: Sequence[Port]) -> float | None:
    known = [port.state for port in others if port.state is not None]
    if len(known) < FEWEST:
        return None
    return round(sum(state in UP for state in known) / len(known), 3)


def _usual(port: Port, others: Sequence[Port]) -> float | None:
    rates = [other.rate for other in others if other.state in UP and other.rate is not None]
    found = [] if port.best is None else [port.best]
    if len(rates) >= FEWEST:
        rate, times = Counter(rates).most_common(1)[0]
        if times >= _COMMON * len(rates):
            found.append(rate)
    return max(found, default=None)
