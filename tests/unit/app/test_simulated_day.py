"""24 hours of a healthy simulated node, through real pynvml: nothing that happens on one touches it."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from .healthy_node import HealthyNode, healthy_node

DAY = 86_400
POLL = 45.0
"""Simulated seconds between two polls while nothing happens; 1 s for a while after something did."""


def job(node: HealthyNode) -> None:
    """One begins, or the one that runs ends."""
    if node.busy:
        node.end_job()
    else:
        node.begin_job()


HAPPENINGS: tuple[tuple[Callable[[HealthyNode], None], int], ...] = (
    (job, 40), (HealthyNode.crash, 12), (HealthyNode.restart_agent, 8), (HealthyNode.restart_exporter, 8),
    (HealthyNode.step_clock, 8), (HealthyNode.upgrade_driver, 2),
)
"""What happens on a node, and how often a day."""


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1])
def test_nothing_touches_a_healthy_simulated_node(seed: int, tmp_path: Path) -> None:
    """No fault with an effect above event and no taint at any step, and every condition False in the end."""
    chance = random.Random(seed)  # noqa: S311 # a day for a test
    happenings = [happening for happening, times in HAPPENINGS for _ in range(times)]
    chance.shuffle(happenings)
    with healthy_node(tmp_path, chance) as node:
        end = node.clock.boot() + DAY
        for number, happening in enumerate(happenings, 1):
            happening(node)
            node.wait(12, 1.0)
            quiet = (end - node.clock.boot()) / (len(happenings) + 1 - number)
            node.wait(max(quiet, 0.0), POLL)
        assert node.clock.boot() >= end
        assert {one.status for one in node.engine.intent().conditions} == {"False"}
        counted = {code: count for (signal, _, code), count in node.engine.event_counts.items() if signal == "gpu_xid"}
        assert set(counted) >= {"43", "45"}
