"""What the operator expects of this node, told to the engine before any source has spoken."""

from collections.abc import Collection, Iterator

from nodeguard.config.settings import AgentSettings
from nodeguard.model.device import NODE, Device, rdma_port
from nodeguard.model.sample import Expected, Sample
from nodeguard.sources.rdma_expected import expected_samples


def rdma_ports(settings: AgentSettings) -> frozenset[Device]:
    """Ports that should be up."""
    return frozenset(rdma_port(port.hca, port.number) for port in settings.expect_rdma)


def expected(settings: AgentSettings) -> Expected:
    """Devices by name, and numbers of a kind."""
    counts = {} if settings.expect_gpus is None else {"gpu": settings.expect_gpus}
    return Expected(rdma_ports(settings), counts)


def samples(settings: AgentSettings, before: Collection[Device]) -> Iterator[Sample]:
    """``before``: RDMA ports that an earlier agent expected; those that this one does not are taken back."""
    if settings.expect_gpus is not None:
        yield Sample("gpu_count_expected", NODE, settings.expect_gpus)
    rates = {rdma_port(port.hca, port.number): port.gbps for port in settings.expect_rdma}
    yield from expected_samples(rates, before)
