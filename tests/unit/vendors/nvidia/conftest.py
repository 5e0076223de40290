"""Simulated GPUs with the façade open above them."""

from collections.abc import Iterator

import pytest

from nodeguard.sim.driver import SimulatedDriver, SimulatedGpu

from .nvml_rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A GPU at rest."""
    with SimulatedDriver(1) as driver:
        yield Rig(driver)


@pytest.fixture
def card() -> Iterator[Rig]:
    """A card for desktops."""
    with SimulatedDriver([SimulatedGpu.consumer()]) as driver:
        yield Rig(driver)
