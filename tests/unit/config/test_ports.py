"""RDMA ports and devices as settings."""

import pytest

from nodeguard.config.ports import ExpectedPort
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.model.errors import ConfigError

NAMED = {"node_name": "n1"}


@pytest.mark.parametrize(("given", "ports"), [
    (["mlx5_0"], (ExpectedPort("mlx5_0", 1, None),)),
    (["mlx5_0/2=400", "rdmap59s0"], (ExpectedPort("mlx5_0", 2, 400.0), ExpectedPort("rdmap59s0", 1, None))),
    ("mlx5_0=100,mlx5_1/1=2.5", (ExpectedPort("mlx5_0", 1, 100.0), ExpectedPort("mlx5_1", 1, 2.5))),
])
def test_expected_ports(given: object, ports: tuple[ExpectedPort, ...]) -> None:
    """Port 1 unless another is given; a rate if one is; a flag may be repeated, a variable has commas."""
    assert resolve_agent_settings({**NAMED, "expect_rdma": given}, {}).expect_rdma == ports


def test_from_the_environment() -> None:
    """Both settings are variables too."""
    settings = resolve_agent_settings(
        NAMED, {"NODEGUARD_EXPECT_RDMA": "mlx5_0, mlx5_1", "NODEGUARD_RDMA_EXCLUDE": "mlx5_8,mlx5_9"})
    assert [port.hca for port in settings.expect_rdma] == ["mlx5_0", "mlx5_1"]
    assert settings.rdma_exclude == ("mlx5_8", "mlx5_9")


@pytest.mark.parametrize("given", ["mlx5_0/0", "mlx5_0=0", "mlx5_0=fast", "", "../x", "mlx5_0/1/2", "mlx5_0,mlx5_0/1"])
def test_what_is_no_port_is_refused(given: str) -> None:
    """One sentence that says where and what is valid."""
    with pytest.raises(ConfigError, match="--expect-rdma"):
        resolve_agent_settings({**NAMED, "expect_rdma": [given]}, {})


def test_what_is_no_device_is_refused() -> None:
    """A path, or nothing."""
    with pytest.raises(ConfigError, match="must be the name of an RDMA device"):
        resolve_agent_settings({**NAMED, "rdma_exclude": ["a/b"]}, {})
