"""Levels: what fires, what holds, what clears, and what unknown does to it (design §4, first row of the table)."""

import pytest

from nodeguard.model.sample import Batch, Event, Missed, Present, Sample

from .rig import A, B, MakeRig

HOT = {"signal": "gpu_temperature_celsius", "above": 90}


def test_a_level_fires_at_its_first_true_sample(rig: MakeRig) -> None:
    """Without ``for`` one sample is enough; at the limit itself ``above`` is not true."""
    node = rig(HOT)
    assert node.hot(0, 90) == []
    assert node.hot(1, 90.5) == ["1 opened r gpu/GPU-a"]
    assert node.hot(2, 91) == []
    assert node.fault.evidence["value"] == 90.5


@pytest.mark.parametrize(
    ("test", "quiet", "loud"),
    [
        ({"signal": "gpu_power_watts", "below": 10}, 10, 9),
        ({"signal": "gpu_recovery_action", "is": 2}, 1, 2),
        ({"signal": "gpu_recovery_action", "is": [1, 4]}, 2, 4),
        ({"signal": "gpu_recovery_action", "is_not": [0, 1]}, 1, 5),
        ({"signal": "gpu_fabric_state", "is": "unhealthy"}, "completed", "unhealthy"),
        ({"signal": "gpu_fabric_state", "is_not": ["completed", "not_supported"]}, "completed", "in_progress"),
    ],
)
def test_every_comparison(rig: MakeRig, test: dict[str, object], quiet: float | str, loud: float | str) -> None:
    """``below``, ``is`` and ``is_not``, with numbers and words, one value and a list."""
    node = rig(test)
    assert node.read(0, str(test["signal"]), quiet) == []
    assert node.read(1, str(test["signal"]), loud) == ["1 opened r gpu/GPU-a"]


def test_a_reference_is_the_same_devices_newest_known_sample(rig: MakeRig) -> None:
    """``above: {signal, plus}`` compares on one device; while the other signal is unknown nothing is judged."""
    node = rig({**HOT, "above": {"signal": "gpu_temperature_slowdown_celsius", "plus": -3}})
    assert node.hot(0, 95) == []
    node.poll(1, B, gpu_temperature_slowdown_celsius=80)
    assert node.hot(1, 95) == []
    assert node.poll(2, gpu_temperature_celsius=88, gpu_temperature_slowdown_celsius=90) == ["2 opened r gpu/GPU-a"]


def test_for_seconds_is_from_the_first_to_the_last_true_sample(rig: MakeRig) -> None:
    """10 s apart is enough, 9 s is not; a false sample starts anew."""
    node = rig({**HOT, "for": "10s"})
    assert [node.hot(at, 95) for at in (0, 5, 9)] == [[], [], []]
    node.hot(9.5, 80)
    assert node.hot(10, 95) == []
    assert node.hot(19.9, 95) == []
    assert node.wait(30) == []
    assert node.hot(30, 95) == ["30 opened r gpu/GPU-a"]


def test_for_samples_counts_known_samples(rig: MakeRig) -> None:
    """Three in a row, however far apart."""
    node = rig({**HOT, "for": {"samples": 3}})
    assert node.hot(0, 95) == []
    assert node.hot(0.5, 95) == []
    assert node.hot(90, 95) == ["90 opened r gpu/GPU-a"]


def test_unknown_neither_counts_nor_resets(rig: MakeRig) -> None:
    """C29f: a missing reading between two true ones is no sample; time goes on."""
    node = rig({**HOT, "for": {"samples": 3}})
    node.hot(0, 95)
    assert node.hot(1, None) == []
    assert node.hot(2, None) == []
    node.hot(3, 95)
    assert node.hot(4, 95) == ["4 opened r gpu/GPU-a"]
    timed = rig({**HOT, "for": "2s"})
    timed.hot(0, 95)
    timed.hot(1, None)
    assert timed.hot(2, 95) == ["2 opened r gpu/GPU-a"]


def test_a_gap_in_which_the_value_aged_out_resets(rig: MakeRig) -> None:
    """After three polls without a known value the sample is unknown, and what held before is forgotten."""
    node = rig({**HOT, "for": "5s"})
    node.hot(0, 95)
    for at in (1, 2, 3):
        assert node.hot(at, None) == []
    assert node.hot(6, 95) == []
    assert node.hot(10.9, 95) == []
    assert node.hot(11, 95) == ["11 opened r gpu/GPU-a"]


def test_age_is_counted_in_polls_of_the_samples_own_source(rig: MakeRig) -> None:
    """Seconds do not age a sample, nor do polls of another source; a missed deadline is an empty poll."""
    node = rig({**HOT, "for": "2000s"})
    node.hot(0, 95)
    for at in (1000, 1001, 1002, 1003):
        node.poll(at, source="exporter/dcgm", gpu_temperature_celsius=None)
        node.facts(at, Missed(), source="exporter/dcgm")
    node.facts(1004, Missed(), source="nvml")
    node.facts(1005, Missed(frozenset({A})), source="nvml")
    node.facts(1006, Missed(frozenset({B})), source="nvml")
    assert node.hot(2000, 95) == ["2000 opened r gpu/GPU-a"]
    aged = rig({**HOT, "for": "20s"})
    aged.hot(0, 95)
    for at in (1, 2, 3):
        aged.facts(at, Missed(), source="nvml")
    assert aged.hot(20, 95) == []


def test_a_complete_poll_ages_what_it_does_not_carry(rig: MakeRig) -> None:
    """A page that should have carried every series it ever gave; a partial poll ages nothing."""
    for complete, opened in ((False, True), (True, False)):
        node = rig({**HOT, "for": "5s"})
        node.hot(0, 95)
        for at in (1, 2, 3):
            node.poll(at, complete=complete, gpu_power_watts=1)
        assert bool(node.hot(5, 95)) is opened


def test_default_clear_is_three_known_false_samples(rig: MakeRig) -> None:
    """Without ``for``: three polls; unknown is none of them, and true starts anew."""
    node = rig(HOT)
    node.hot(0, 95)
    assert node.hot(1, 80) == []
    assert node.hot(2, 95) == []
    assert node.hot(3, 80) == []
    assert node.hot(4, None) == []
    assert node.hot(5, 80) == []
    assert node.hot(6, 80) == ["6 closed r gpu/GPU-a"]


def test_default_clear_lasts_as_long_as_for(rig: MakeRig) -> None:
    """The longer of ``for`` and three polls."""
    node = rig({**HOT, "for": "10s"})
    node.hot(0, 95)
    node.hot(10, 95)
    assert [node.hot(at, 80) for at in (11, 14, 17, 20.9)] == [[], [], [], []]
    assert node.hot(21, 80) == ["21 closed r gpu/GPU-a"]


def test_hysteresis(rig: MakeRig) -> None:
    """``clear.below`` for ``after``: between the limits nothing changes, and the clock starts anew."""
    node = rig({**HOT, "clear": {"below": 80, "after": "1m"}})
    node.hot(0, 95)
    node.hot(1, 85)
    node.hot(300, 85)
    assert node.open == ["r gpu/GPU-a"]
    node.hot(301, 79)
    node.hot(330, 85)
    node.hot(331, 79)
    assert node.hot(390, 79) == []
    assert node.hot(391, 79) == ["391 closed r gpu/GPU-a"]


def test_a_test_that_holds_is_not_over(rig: MakeRig) -> None:
    """An override of the limit alone leaves a ``clear`` that is true all the time: nothing blinks for it."""
    node = rig({**HOT, "above": 20, "clear": {"below": 80, "after": "1m"}})
    node.hot(0, 41)
    assert [node.hot(at, 41) for at in (1, 61, 121)] == [[], [], []]
    assert node.open == ["r gpu/GPU-a"]
    node.hot(122, 19)
    assert node.hot(182, 19) == ["182 closed r gpu/GPU-a"]


def test_clear_by_a_level_alone_needs_one_sample(rig: MakeRig) -> None:
    """``clear: {is: 0}`` says itself what is proof."""
    node = rig({"signal": "gpu_recovery_action", "is": 1, "clear": {"is": 0}})
    node.poll(0, gpu_recovery_action=1)
    assert node.poll(1, gpu_recovery_action=3) == []
    assert node.poll(2, gpu_recovery_action=None) == []
    assert node.poll(3, gpu_recovery_action=0) == ["3 closed r gpu/GPU-a"]


def test_clear_after_alone_is_false_for_so_long(rig: MakeRig) -> None:
    """``clear: {after: 30s}`` on a level: known false samples, 30 s from first to last."""
    node = rig({**HOT, "clear": {"after": "30s"}})
    node.hot(0, 95)
    node.hot(1, 80)
    assert node.hot(30, 80) == []
    assert node.hot(31, 80) == ["31 closed r gpu/GPU-a"]


def test_clear_while_another_signal_holds(rig: MakeRig) -> None:
    """``while``: no time passes towards ``after`` without it; unknown is without it."""
    node = rig({**HOT, "clear": {"after": "10s", "while": {"signal": "gpu_power_watts", "below": 100}}})
    node.hot(0, 95)
    node.hot(1, 80)
    node.hot(20, 80)
    assert node.open == ["r gpu/GPU-a"]
    node.poll(21, gpu_power_watts=50, gpu_temperature_celsius=80)
    assert node.hot(31, 80) == ["31 closed r gpu/GPU-a"]


def test_require_needs_every_companion_on_the_same_device(rig: MakeRig) -> None:
    """Newest known samples of one device; unknown companions open nothing."""
    node = rig(
        {
            "signal": "pcie_link_generation",
            "below": {"signal": "pcie_link_generation_max"},
            "require": [{"signal": "gpu_utilization_ratio", "above": 0.05}, {"signal": "gpu_power_watts", "above": 9}],
        }
    )
    assert node.poll(0, pcie_link_generation=1, pcie_link_generation_max=5, gpu_power_watts=80) == []
    node.poll(0, B, gpu_utilization_ratio=1)
    assert node.poll(1, pcie_link_generation=1, gpu_utilization_ratio=0.01) == []
    assert node.poll(2, pcie_link_generation=1, gpu_utilization_ratio=0.5) == ["2 opened r gpu/GPU-a"]


def test_samples_of_one_batch_are_judged_together(rig: MakeRig) -> None:
    """A companion that stands later in the batch counts already."""
    node = rig({**HOT, "require": [{"signal": "gpu_utilization_ratio", "above": 0.5}]})
    assert node.poll(0, gpu_temperature_celsius=95, gpu_utilization_ratio=0.9) == ["0 opened r gpu/GPU-a"]


def test_the_newest_known_sample_of_any_source_wins(rig: MakeRig) -> None:
    """Two sources feed one state; unknown from one does not hide the other's value."""
    node = rig({"signal": "gpu_recovery_action", "is": 1, "clear": {"is": 0}})
    node.poll(0, source="kmsg", gpu_recovery_action=1)
    for at in (1, 2, 3, 4):
        assert node.poll(at, source="nvml", gpu_recovery_action=None) == []
    assert node.open == ["r gpu/GPU-a"]
    assert node.poll(5, source="nvml", gpu_recovery_action=0) == ["5 closed r gpu/GPU-a"]


def test_labels_are_series_of_one_fault(rig: MakeRig) -> None:
    """Two links of one GPU down are one fault, which closes when both are back; ``match`` looks at labels."""
    node = rig(
        {"signal": "nvlink_state", "is": "inactive", "match": {"link": {"not": ["17"]}}, "clear": {"is": "active"}}
    )

    def links(at: float, **states: str) -> list[str]:
        samples = tuple(Sample("nvlink_state", A, word, (("link", name[1:]),)) for name, word in states.items())
        return node.take(at, Batch(source="nvml", samples=samples))

    assert links(0, l17="inactive") == []
    assert links(1, l3="inactive", l4="inactive") == ["1 opened r gpu/GPU-a"]
    assert links(2, l3="active") == []
    assert links(3, l4="active") == ["3 closed r gpu/GPU-a"]


def test_a_device_that_left_judges_nothing(rig: MakeRig) -> None:
    """Its values are unknown from then on; its open faults stay."""
    node = rig({**HOT, "for": "10s"})
    node.facts(0, Present("gpu", frozenset({A, B})), source="nvml")
    node.hot(0, 95)
    node.facts(1, Present("gpu", frozenset({B})), source="nvml")
    node.facts(2, Present("gpu", frozenset({A, B})), source="nvml")
    assert node.hot(10, 95) == []


def test_events_do_not_touch_levels(rig: MakeRig) -> None:
    """An event batch is no sample."""
    node = rig(HOT)
    assert node.take(0, Batch(source="kmsg", events=(Event("gpu_xid", A, {"code": 13}),))) == []
