"""Every shipped rule has a test that fires it and a near miss in which it stays silent."""

from functools import cache

import pytest

from nodeguard.app.replay import Player, open_recording
from nodeguard.app.ruletests import Case, load_cases, run_case
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.model.device import Device
from nodeguard.model.sample import Batch, Sample
from nodeguard.sources.recording.reader import Act

from .rig import shipped

RULES = [rule.name for rule in shipped().rules]
AGENTS_OWN = ("nodeguard-rules-invalid", "nodeguard-state-unwritable")
"""Rules on what only a running agent knows, which no recording carries."""


@cache
def cases() -> tuple[Case, ...]:
    return tuple(load_cases([shipped_rules_dir() / "tests"]))


@cache
def outcomes() -> tuple[tuple[Case, frozenset[tuple[str, Device]], frozenset[tuple[str, Device]]], ...]:
    """Of every case: the (rule, device) that opened, and the (signal, device) that was told."""
    found = []
    for case in cases():
        player = Player(shipped())
        acts = open_recording(case.recording, case.file, [])
        opened = {(one.fault.rule, one.fault.device) for one in player.play(acts) if one.transition == "opened"}
        told = {(sample.signal, sample.device) for sample, _ in player.engine.readings()}
        told |= {(signal, device) for signal, device, _ in player.engine.event_counts}
        found.append((case, frozenset(opened), frozenset(told)))
    return tuple(found)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_shipped_rules_pass_their_tests(case: Case) -> None:
    """As ``nodeguard rules test`` runs them."""
    assert run_case(case, shipped()).failures == []


@pytest.mark.parametrize("rule", [name for name in RULES if name not in AGENTS_OWN])
def test_a_case_fires_the_rule(rule: str) -> None:
    """At least one."""
    assert any(rule == name for _, opened, _ in outcomes() for name, _ in opened)


@pytest.mark.parametrize("rule", [name for name in RULES if name not in AGENTS_OWN])
def test_a_near_miss_stays_silent(rule: str) -> None:
    """Some case tells the rule's own signal of a device on which it does not open, or names it and it is silent."""
    signal = next(one.signal for one in shipped().rules if one.name == rule)
    assert any(
        (case.rule == rule and all(name != rule for name, _ in opened))
        or any(told_signal == signal and (rule, device) not in opened for told_signal, device in told)
        for case, opened, told in outcomes()
    )


@pytest.mark.parametrize(("rule", "signal"), list(zip(AGENTS_OWN, ("rules_invalid", "state_unwritable"), strict=True)))
def test_the_agents_own_troubles_are_told(rule: str, signal: str) -> None:
    """Degraded while they last; a moment of it, and its end, are nothing."""
    player = Player(shipped())

    def told(at: float, value: int | None) -> set[str]:
        batch = None if value is None else Batch(source="agent", samples=(Sample(signal, Device("node"), value),))
        return {f"{one.transition} {one.fault.rule}" for one in player.play([Act(at, batch)])}

    assert told(0, 0) == set()
    assert told(1, 1) | told(60, None) == {f"opened {rule}"}
    assert player.final()["conditions"]["NodeguardDegraded"]["status"] == "True"
    assert player.final()["taints"] == []
    assert told(61, 0) == {f"closed {rule}"}
