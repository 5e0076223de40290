"""What holds for every rule set and every history (hypothesis)."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeguard.engine import memory
from nodeguard.model.fault import Fault, Transition
from nodeguard.model.sample import Batch, Missed, Sample

from .rig import Rig, short
from .worlds import World

END = 1000.0
"""Seconds after the last batch in which timers may run out."""

worlds = st.builds(World, st.integers(0, 1 << 40), st.integers(1, 4), st.integers(1, 25))
every = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def history_of(node: Rig) -> list[str]:
    return [f"{short(one)} {one.fault.effect} {one.fault.count} {one.detail}" for one in node.transitions]


def play(node: Rig, history: list[tuple[float, Batch]]) -> Rig:
    for at, batch in history:
        node.take(at, batch)
    node.wait(history[-1][0] + END)
    return node


@every
@given(worlds)
def test_opened_and_closed_alternate(world: World) -> None:
    """At most one open fault per rule and device; what is told adds up to what is open; times never go back."""
    rules, history = world.rules, world.history
    node = play(Rig(*rules), history)
    told: dict[tuple[str, str], Fault] = {}
    last = float("-inf")
    for one in node.transitions:
        assert one.at >= last
        last = one.at
        follow(told, one)
    assert told.keys() == {(fault.rule, fault.device) for fault in node.engine.open_faults()}


def follow(told: dict[tuple[str, str], Fault], one: Transition) -> None:
    key = (one.fault.rule, one.fault.device)
    if one.transition == "opened":
        assert key not in told
    else:
        assert (one.fault.rule, one.was or one.fault.device) in told
        del told[one.fault.rule, one.was or one.fault.device]
    if one.transition != "closed":
        told[key] = one.fault


@every
@given(worlds)
def test_a_restart_at_any_point_changes_nothing(world: World) -> None:
    """The same transitions, the same end, the same next timer."""
    rules, history = world.rules, world.history
    whole, broken = play(Rig(*rules), history), play(Rig(*rules, restarts=True), history)
    assert history_of(broken) == history_of(whole)
    assert broken.engine.step(whole.engine.now) == ()
    assert broken.engine.open_faults() == whole.engine.open_faults()
    assert broken.engine.intent() == whole.engine.intent()
    assert broken.engine.next_due() == whole.engine.next_due()
    assert memory.node_part(broken.engine) == memory.node_part(whole.engine)


@every
@given(worlds, st.lists(st.floats(0.01, 0.99), min_size=1, max_size=3))
def test_empty_steps_change_nothing(world: World, shares: list[float]) -> None:
    """The agent's loop turns at any moment; a replay does not."""
    rules, history = world.rules, world.history
    plain, turning = play(Rig(*rules), history), Rig(*rules)
    before = history[0][0]
    for at, batch in history:
        for share in sorted(shares):
            turning.wait(before + (at - before) * share)
        turning.take(at, batch)
        before = at
    turning.wait(before + END)
    assert history_of(turning) == history_of(plain)


@every
@given(worlds)
def test_unknown_opens_nothing_and_clears_nothing(world: World) -> None:
    """From any point on, polls that bring nothing known tell nothing but what timers tell anyway."""
    rules = [
        {key: value for key, value in rule.items() if key != "mutes"} for rule in world.rules if "absent" not in rule
    ]
    at = 0.0
    node = Rig(*rules)
    for at, batch in world.history:
        node.take(at, batch)
    sighted = list(node.engine.series.all)
    for _ in range(8):
        at += 1.0
        due = node.engine.next_due()
        nothing = tuple(Sample(signal, device, None, labels) for signal, device, labels in sighted)
        told = node.take(at, Batch(source="nvml", samples=nothing, facts=(Missed(),)))
        assert not told or (due is not None and due <= at)
