"""A running embedded API server, and a client of it."""

from collections.abc import Iterator

import pytest

from nodeguard.sim.apiserver import EmbeddedApiServer

from .client import READY, THEIRS, Client


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    """A server with one node."""
    with EmbeddedApiServer(history=50) as running:
        running.create("/api/v1/nodes", {
            "metadata": {"name": "gpu-7", "labels": {"pool": "a"}}, "spec": {"taints": [THEIRS]},
            "status": {"conditions": [READY]}})
        yield running


@pytest.fixture
def call(server: EmbeddedApiServer) -> Client:
    """A client with the right token."""
    return Client(server)
