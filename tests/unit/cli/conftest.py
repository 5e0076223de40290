"""What the commands that speak to a cluster are tested against."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeguard.sim.apiserver import EmbeddedApiServer


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig of a running server."""
    with EmbeddedApiServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        yield tmp_path / "kubeconfig"
