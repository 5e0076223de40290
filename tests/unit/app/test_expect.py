"""What the operator expects, told at the agent's start."""

from typing import Any

from nodeguard.app import expect
from nodeguard.config.settings import AgentSettings, resolve_agent_settings
from nodeguard.model.device import rdma_port
from nodeguard.model.sample import Expected

P0, P1 = rdma_port("mlx5_0", 1), rdma_port("mlx5_1", 1)


def settings(**given: Any) -> AgentSettings:
    return resolve_agent_settings({"node_name": "n", **given}, {})


def told(given: AgentSettings, *before: str) -> dict[tuple[str, str], object]:
    devices = [rdma_port(name, 1) for name in before]
    return {(one.signal, one.device): one.value for one in expect.samples(given, devices)}


def test_ports_and_rates_are_told() -> None:
    """A rate only where one was given."""
    given = settings(expect_rdma=["mlx5_0=400", "mlx5_1"], expect_gpus="8")
    assert expect.expected(given) == Expected(frozenset({P0, P1}), {"gpu": 8})
    assert told(given) == {
        ("gpu_count_expected", "node"): 8, ("rdma_port_expected", P0): 1, ("rdma_port_expected", P1): 1,
        ("rdma_port_rate_expected_gbps", P0): 400.0}


def test_what_is_not_expected_any_more_is_taken_back() -> None:
    """An agent before this one expected it; its faults must be able to end."""
    assert expect.expected(settings()) == Expected()
    assert told(settings(), "mlx5_0") == {("rdma_port_expected", P0): 0, ("rdma_port_rate_expected_gbps", P0): 0}
