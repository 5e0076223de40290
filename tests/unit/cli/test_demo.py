"""``nodeguard demo``: every scenario ends with what it promises, and leaves nothing running."""

import threading

import pytest

from nodeguard.__main__ import main
from nodeguard.sim.scenarios import SCENARIOS


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_runs_to_its_end(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The condition, the annotation and the taint are seen, and their end where something mends it."""
    before = set(threading.enumerate())
    assert main(["demo", "--scenario", name]) == 0
    printed = capsys.readouterr().out
    scenario = SCENARIOS[name]
    assert f"condition {scenario.condition}=True" in printed
    assert "taint nodeguard.io/unhealthy:NoSchedule" in printed
    assert ("taint removed" in printed) == (scenario.mend is not None)
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(5.0)
    assert not [thread for thread in left if thread.is_alive()]


def test_an_unknown_scenario_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 and the valid words."""
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--scenario", "fire"])
    assert caught.value.code == 2
    assert "xid79" in capsys.readouterr().err
