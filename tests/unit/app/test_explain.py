"""``replay --explain RULE``: what it says of each sample, and the pages that are made from the same words."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodeguard.__main__ import main
from nodeguard.app.explain import rule_called
from nodeguard.app.explain_pages import pages
from nodeguard.app.explain_replay import Explainer, text_of
from nodeguard.app.replay import Player, open_recording
from nodeguard.model.errors import Problem  # noqa: TC001 # as the other tests import it
from nodeguard.model.rule import RuleSet
from nodeguard.sources.recording.reader import Entry

from .rig import LINE, rules, shipped

DOCS = Path(__file__).parents[3] / "docs"
HOT = {"signal": "gpu_temperature_celsius", "above": {"signal": "gpu_temperature_slowdown_celsius", "plus": -3}}


def explained(ruleset: RuleSet, *entries: Mapping[str, Any], rule: str = "r", soak: float = 0.0) -> list[str]:
    """The rows of a recording, as text without their times."""
    problems: list[Problem] = []
    player = Player(ruleset, soak=soak)
    acts = open_recording([Entry(number, 1, one) for number, one in enumerate(entries, 1)], "r", problems)
    rows = [text_of(row)[14:] for row in Explainer(player, rule_called(rule, ruleset)).rows(acts)]
    assert problems == []
    return rows


def poll(at: float, **readings: object) -> dict[str, Any]:
    return {"at": at, "nvml": {"gpus": {"GPU-a": readings}}}


def heat(at: float, celsius: float | None, limit: float | None = 90) -> dict[str, Any]:
    return poll(at, gpu_temperature_celsius=celsius, gpu_temperature_slowdown_celsius=limit)


def test_a_level_is_told_with_its_limit_and_how_long_it_held() -> None:
    """Value against the limit of that moment, the progress of ``for``, and the opening."""
    said = explained(rules({**HOT, "for": "10s"}), heat(0, 91), heat(6, 91), heat(12, 91), heat(13, None))
    assert said == [
        "gpu/GPU-a: true, not open: 91 above 87 (gpu_temperature_slowdown_celsius is 90); true for 0 of 10 s",
        "gpu/GPU-a: true, not open: 91 above 87 (gpu_temperature_slowdown_celsius is 90); true for 6 of 10 s",
        "gpu/GPU-a: true, open: 91 above 87 (gpu_temperature_slowdown_celsius is 90)",
        "OPENED   gpu/GPU-a: value=91",
        "gpu/GPU-a: unknown, open: this poll brought no known value; what is known is 91",
    ]


def test_an_unknown_limit_and_an_unknown_companion_are_named() -> None:
    """Neither opens anything, and a person must see which of them it was."""
    assert explained(rules(HOT), heat(0, 91, None)) == [
        "gpu/GPU-a: unknown, not open: 91 above gpu_temperature_slowdown_celsius, which is unknown"]
    busy = {"signal": "gpu_temperature_celsius", "above": 80,
            "require": [{"signal": "gpu_utilization_ratio", "above": 0.05}]}
    assert explained(rules(busy), heat(0, 91)) == [
        "gpu/GPU-a: true, not open: 91 above 80; required: gpu_utilization_ratio is above 0.05, which is unknown"]
    idle = poll(0, gpu_temperature_celsius=91, gpu_utilization_ratio=0.01)
    assert "and gpu_utilization_ratio is 0.01" in explained(rules(busy), idle)[0]


def test_an_event_that_does_not_match_says_what_it_is() -> None:
    """With the attribute that the rule wanted otherwise."""
    wanted = {"signal": "gpu_xid", "match": {"code": 95}, "clear": {"on": "reset"}}
    assert explained(rules(wanted), {"at": 1, "kmsg": LINE}) == [
        "gpu/0000:3b:00.0 code=48 class=memory: false, not open: it does not match: code is 95, and code is 48"]


def test_a_count_shows_its_window_and_what_it_could_not_count() -> None:
    """Occurrences within the span, and the pod that is not known."""
    thrice = {"signal": "gpu_xid", "count": {"at_least": 3, "within": "10m"}}
    assert "2 in the window (1, 5)" in explained(
        rules(thrice), {"at": 1, "kmsg": LINE}, {"at": 5, "kmsg": LINE})[1]
    apart = {"signal": "gpu_xid", "count": {"at_least": 3, "within": "10m", "distinct": "pod"}}
    assert "its pod is unknown" in explained(rules(apart), {"at": 1, "kmsg": LINE})[0]


def test_a_counter_shows_its_increments() -> None:
    """By source, with their moments."""
    grown = {"signal": "pcie_replay_total", "increase": {"at_least": 10, "within": "1m"}}
    said = explained(rules(grown), poll(0, pcie_replay_total=5), poll(3, pcie_replay_total=9))
    assert "the window is empty" in said[0]
    assert "nvml: 1 in the window (4@3)" in said[1]


def test_what_holds_an_effect_back_is_told() -> None:
    """Observe mode, soak, a mute, a source that cannot see."""
    observed = rules({**HOT, "effect": "noschedule", "condition": "GpuHot", "mode": "observe"})
    assert "mode is observe: the effect is event at most, not noschedule" in explained(observed, heat(0, 91))[0]
    assert "the rule soaks until " in explained(
        rules({**HOT, "effect": "noschedule", "condition": "GpuHot"}), heat(0, 91), soak=600)[0]
    blind = explained(rules(HOT), {"at": 1, "nvml": {"error": "DRIVER_NOT_LOADED"}})
    assert blind == ["the source nvml cannot see: DRIVER_NOT_LOADED"]
    everywhere = {**HOT, "name": "all", "across": {"kind": "gpu", "at_least": 1}, "mutes": ["r"]}
    assert any("muted by all" in line for line in explained(rules(HOT, everywhere), heat(0, 91), heat(1, 92)))


def test_a_state_that_was_left_shows_what_was_seen() -> None:
    """The memory that ``left`` judges by."""
    left = {"signal": "nvlink_state", "left": ["active"]}
    said = explained(rules(left), poll(0, nvlink_state={"0": "inactive"}), poll(1, nvlink_state={"0": "active"}),
                     poll(2, nvlink_state={"0": "inactive"}))
    assert "it is inactive; seen before: inactive" in said[0]
    assert "true, open" in said[2]


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As text under the rule's own words, or one JSON object a line; an unknown rule is a mistake."""
    file = tmp_path / "r.jsonl"
    file.write_text(json.dumps({"at": 1, "kmsg": LINE}) + "\n")
    assert main(["replay", str(file), "--explain", "gpu-xid-uncontained-ecc"]) == 0
    assert "it does not match: code is 95" in capsys.readouterr().out
    assert main(["replay", str(file), "--explain", "gpu-xid-uncontained-ecc", "--output", "json"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["at"], row["verdict"], row["open"]) == (1, False, False)
    assert main(["replay", str(file), "--explain", "gpu-hot"]) == 0
    assert "no source told it" in capsys.readouterr().out
    assert main(["replay", str(file), "--explain", "gpu-hit"]) == 2
    assert "no rule is called 'gpu-hit'" in capsys.readouterr().err


@pytest.mark.parametrize("rule", [one.name for one in shipped().rules])
def test_every_shipped_rule_can_be_explained(rule: str) -> None:
    """On a recording with something of everything."""
    entries = [heat(0, 99), {"at": 1, "kmsg": LINE}, {"at": 2, "nvml": {"gpus": {}}},
               {"at": 3, "sysfs": {"class/infiniband/mlx5_0/ports/1/state": "1: DOWN"}},
               {"at": 90, "agent_restart": True}]
    explained(shipped(), *entries, rule=rule)


@pytest.mark.parametrize("number", ["9" * 5000, "1e3", "\u0661", ""])
def test_a_number_that_is_no_xid_is_a_plain_mistake(capsys: pytest.CaptureFixture[str], number: str) -> None:
    """However long it is."""
    assert main(["explain", "xid", number]) == 2
    assert len(capsys.readouterr().err) < 1000


def test_the_pages_are_up_to_date() -> None:
    """``make docs`` writes them anew."""
    for name, text in pages(shipped()).items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"run make docs: {name} is not up to date"


def test_the_pages_link_what_they_name() -> None:
    """Every rule, signal and Xid has its place, and a table's cells do not break it."""
    made = pages(shipped())
    assert all(f"\n## {rule.name}\n" in made["rules.md"] for rule in shipped().rules)
    assert "[gpu_xid](signals.md#gpu_xid)" in made["rules.md"]
    rows = [line for line in made["xids.md"].splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {9}
