"""What the operator expects of RDMA ports, as samples: the same from a setting and from a recording."""

from collections.abc import Collection, Iterator, Mapping

from nodeguard.model.device import Device
from nodeguard.model.sample import Sample


def expected_samples(rates: Mapping[Device, float | None], before: Collection[Device] = ()) -> Iterator[Sample]:
    """``rates``: expected ports with their rate in Gb/s, where one is given. ``before``: ports once expected."""
    for device in sorted({*rates, *before}):
        yield Sample("rdma_port_expected", device, int(device in rates))
        rate = rates.get(device)
        # no rate can be below nothing: an expectation that was given up ends its faults
        if rate is not None or device in before:
            yield Sample("rdma_port_rate_expected_gbps", device, rate or 0)
