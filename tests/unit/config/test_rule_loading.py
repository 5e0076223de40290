"""Rules from YAML to the frozen values the engine takes: shapes, defaults, hashes, directories, overrides."""

from pathlib import Path

import pytest

from nodeguard.config.rules import load_rule_texts, load_rules
from nodeguard.model.errors import ConfigError
from nodeguard.model.rule import (
    Absent,
    Across,
    Bare,
    Clear,
    Companion,
    Count,
    Hold,
    Increase,
    Left,
    Level,
    Matcher,
    Rate,
    Reference,
    Rule,
)

HEAD = "apiVersion: nodeguard.io/v1\nkind: RuleSet\nrules:\n"
TAIL = "severity: warning, action: none, effect: event}\n"


def rules_of(*bodies: str, overrides: str = "", labels: dict[str, str] | None = None) -> dict[str, Rule]:
    text = HEAD + "".join(f"- {{{body}, {TAIL}" for body in bodies)
    on_top = f"apiVersion: nodeguard.io/v1\nkind: Overrides\noverrides:\n{overrides}"
    loaded = load_rule_texts(
        [("rules", text)], overrides=[("overrides", on_top)] if overrides else [], node_labels=labels or {})
    return {rule.name: rule for rule in loaded.rules}


def rule_of(body: str, overrides: str = "") -> Rule:
    return rules_of(f"name: one, {body}", overrides=overrides)["one"]


HOT = "signal: gpu_temperature_celsius, above: 90"
XID = "signal: gpu_xid, clear: {after: 1h}"


@pytest.mark.parametrize(("body", "test"), [
    (HOT, Level("above", 90.0)),
    ("signal: gpu_temperature_celsius, below: {signal: gpu_power_watts, plus: -3}",
     Level("below", Reference("gpu_power_watts", -3.0))),
    ("signal: rdma_port_state, is: INIT", Level("is", ("INIT",))),
    ("signal: gpu_recovery_action, is_not: [0, 1]", Level("is_not", (0, 1))),
    ("signal: pcie_replay_total, increase: {at_least: 2, within: 1h30m}", Increase(2.0, 5400.0)),
    ("signal: pcie_replay_total, rate: {above: 100, over: 1m}", Rate(100.0, 60.0)),
    (XID + ", count: {at_least: 3, within: 500ms, distinct: pod, same: [link]}", Count(3, 0.5, "pod", ("link",))),
    ("signal: rdma_port_state, left: [ACTIVE]", Left(("ACTIVE",))),
    ("signal: rdma_port_state, absent: {for: 30s}", Absent()),
    (XID, Bare()),
])
def test_each_test_becomes_its_value(body: str, test: object) -> None:
    """Every test of the language has one frozen form."""
    assert rule_of(body).test == test


@pytest.mark.parametrize(("body", "hold"), [
    (HOT, Hold()),
    (HOT + ", for: 10s", Hold(seconds=10.0)),
    (HOT + ", for: {samples: 3}", Hold(samples=3)),
    ("signal: rdma_port_state, absent: {for: 30s}", Hold(seconds=30.0)),
    ("signal: rdma_port_state, absent: {for: {samples: 3}}", Hold(samples=3)),
    ("signal: rdma_port_state, absent: {}", Hold()),
])
def test_a_hold_is_in_seconds_or_samples(body: str, hold: Hold) -> None:
    """``for`` stands beside a level test and inside ``absent``."""
    assert rule_of(body).hold == hold


@pytest.mark.parametrize(("form", "matcher"), [
    ("95", Matcher("code", any_of=(95,))),
    ("[94, 95]", Matcher("code", any_of=(94, 95))),
    ("{not: 95}", Matcher("code", any_of=(95,), negated=True)),
    ("{regex: '9[45]'}", Matcher("code", regex="(?s:9[45])")),
    ("{not: {regex: '9.*'}}", Matcher("code", regex="(?s:9.*)", negated=True)),
])
def test_match_forms(form: str, matcher: Matcher) -> None:
    """A match is a value, a list, a regular expression, or the negation of one."""
    assert rule_of(f"{XID}, match: {{code: {form}}}").match == (matcher,)


def test_labels_are_text() -> None:
    """A label is compared as text, so an unquoted number matches it."""
    assert rule_of("signal: nvlink_state, is: inactive, match: {link: [3, x]}").match == (
        Matcher("link", any_of=("3", "x")),)


def test_companions_and_clear() -> None:
    """require, hysteresis and clear.while keep their comparisons."""
    rule = rule_of(
        HOT + ", require: [{signal: gpu_utilization_ratio, above: 0.05}], "
        "clear: {below: 80, after: 1m, on: reboot, while: {signal: gpu_recovery_action, is: 0}}")
    assert rule.require == (Companion("gpu_utilization_ratio", Level("above", 0.05)),)
    assert rule.clear == Clear(
        "reboot", 60.0, Level("below", 80.0), Companion("gpu_recovery_action", Level("is", (0,))))


@pytest.mark.parametrize(("body", "scope"), [
    (HOT, "device"),
    (HOT + ", scope: node", "node"),
    ("signal: rdma_port_state, is: INIT", "node"),
    ("signal: gpu_temperature_celsius, above: 9, across: {kind: gpu, at_least: 2}", "node"),
])
def test_default_scope(body: str, scope: str) -> None:
    """GPU signals speak of the device, all others and everything across devices of the node."""
    assert rule_of(body).scope == scope


def test_across_all_and_number() -> None:
    """``all`` has no number."""
    body = "signal: rdma_port_state, is: INIT, across: {kind: rdma_port, at_least: "
    assert rule_of(body + "all}").across == Across("rdma_port", None)
    assert rule_of(body + "3}").across == Across("rdma_port", 3)


def test_mode() -> None:
    """Observed rules are marked, rules that are off are checked, can be muted, and are left out."""
    rules = rules_of(
        "name: seen, mode: observe, signal: rdma_port_state, is: INIT, mutes: gone",
        "name: gone, mode: off, signal: rdma_port_state, is: DOWN")
    assert set(rules) == {"seen"}
    assert rules["seen"].observe


def test_origin_and_default_message() -> None:
    """A rule knows where it was written, and says something even without a message."""
    rule = rule_of(HOT)
    assert (rule.origin, rule.message) == ("rules:4", "one on {device}")


@pytest.mark.parametrize("change", [
    "above: 91", "for: 5s", "clear: {after: 3m}", "signal: gpu_memory_temperature_celsius",
    "require: [{signal: gpu_power_watts, above: 1}]", "across: {kind: gpu, at_least: 2}",
])
def test_a_judging_change_changes_both_hashes(change: str) -> None:
    """Timers of a rule are lost when what decides about its faults changes."""
    before, after = rule_of(HOT), rule_of(HOT, overrides=f"  one: {{{change}}}\n")
    assert before.judging_hash != after.judging_hash
    assert before.content_hash != after.content_hash


@pytest.mark.parametrize("change", ["severity: info", "message: hotter", "runbook: 'http://a/b'", "mode: observe"])
def test_another_change_keeps_the_judging_hash(change: str) -> None:
    """Timers of a rule survive a change of what it says."""
    before, after = rule_of(HOT), rule_of(HOT, overrides=f"  one: {{{change}}}\n")
    assert before.judging_hash == after.judging_hash
    assert before.content_hash != after.content_hash


def test_hashes_do_not_depend_on_place_or_spelling() -> None:
    """The same rule elsewhere, in another order and with 90 written 90.0, is the same rule."""
    other = load_rule_texts([("elsewhere", "# moved\n" + HEAD + (
        "- severity: warning\n  action: none\n  effect: event\n  above: 90.0\n"
        "  signal: gpu_temperature_celsius\n  name: one\n"))])
    assert other.rules[0].content_hash == rule_of(HOT).content_hash
    assert other.hash == load_rule_texts([("rules", HEAD + f"- {{name: one, {HOT}, {TAIL}")]).hash


def test_tests_over_the_same_states_differ() -> None:
    """The kind of test is part of what is hashed."""
    left = rule_of("signal: rdma_port_state, left: [ACTIVE]")
    assert left.judging_hash != rule_of("signal: rdma_port_state, is_not: [ACTIVE]").judging_hash


def test_an_override_with_a_test_replaces_the_test() -> None:
    """Two tests would be a mistake, so the base's gives way; null removes a field."""
    rule = rule_of(HOT + ", for: 10s, runbook: 'http://a/b'", overrides="  one: {below: 10, for: null, runbook: ~}\n")
    assert (rule.test, rule.hold, rule.runbook) == (Level("below", 10.0), Hold(), None)


def test_later_overrides_win_and_labels_select() -> None:
    """A list is applied in order, entries with node labels only where the node carries them all."""
    entries = (
        "  - {rule: one, above: 80}\n"
        "  - {rule: one, nodes: {pool: hot, zone: a}, above: 70}\n"
        "  - {rule: one, severity: info}\n")
    cold = rules_of(f"name: one, {HOT}", overrides=entries, labels={"pool": "hot"})["one"]
    hot = rules_of(f"name: one, {HOT}", overrides=entries, labels={"pool": "hot", "zone": "a", "x": "y"})["one"]
    assert (cold.test, hot.test, hot.severity) == (Level("above", 80.0), Level("above", 70.0), "info")


def problems(overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        rule_of(HOT, overrides=overrides)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(("overrides", "expected"), [
    ("  oen: {above: 3}\n", "overrides:4:3: oen: there is no rule of this name; did you mean 'one'?"),
    ("  one: {severty: info}\n", "overrides:4:9: one: unknown key 'severty'; did you mean 'severity'?"),
    ("  one: {above: null}\n", ("overrides:4:3: one: gpu_temperature_celsius is a gauge: the rule needs a test, "
                               "such as above or is")),
    ("  one: {effect: condition}\n", ("overrides:4:17: one: effect 'condition' needs a condition, the Node condition "
                                     "that it feeds")),
    ("  one: {signal: rdma_port_state}\n", ("overrides:4:3: one: 'above' needs a number; rdma_port_state is a state "
                                           "of words")),
    ("  one: {name: two}\n", "overrides:4:9: one: an override cannot rename a rule"),
    ("  - {rule: one, nodes: {pool: far}, abov: 3}\n", ("overrides:4:37: one: unknown key 'abov'; did you mean "
                                                       "'above'?")),
    ("  - {rule: one, nodes: {pool: 1}}\n", "overrides:4:31: 'pool' must be text (put it in quotes), not 1"),
    ("  - {above: 3}\n", "overrides:4:5: key 'rule' is missing"),
    ("  3\n", "overrides:4:3: 'overrides' must be a list, not 3"),
])
def test_a_bad_override_is_reported_where_it_stands(overrides: str, expected: str) -> None:
    """Also when it breaks another part of the rule, and when it is not meant for this node."""
    assert expected in problems(overrides)


def test_an_override_can_repair_a_rule() -> None:
    """What is wrong in the rules' file and right after the override is no mistake."""
    rule = rule_of("signal: gpu_temperature_celsius, abov: 90", overrides="  one: {abov: null, above: 3}\n")
    assert rule.test == Level("above", 3.0)


def test_every_file_is_reported_at_once(tmp_path: Path) -> None:
    """Mistakes in several files, documents and unreadable paths come together, sorted."""
    (tmp_path / "a.yaml").write_text(HEAD + f"- {{name: one, {HOT}, mod: off, {TAIL}")
    (tmp_path / "b.yml").write_text(HEAD + "- {name: [\n")
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError) as caught:
        load_rules([tmp_path, tmp_path / "absent.yaml"])
    files = [Path(problem.file).name for problem in caught.value.problems]
    assert files == ["a.yaml", "absent.yaml", "b.yml", "c.yaml"]


def test_a_directory_is_its_visible_yaml_files(tmp_path: Path) -> None:
    """Sorted by name; hidden files, other suffixes and directories such as tests are not read."""
    for name, rule in (("b.yaml", "two"), ("a.yml", "one")):
        (tmp_path / name).write_text(HEAD + f"- {{name: {rule}, {HOT}, {TAIL}")
    (tmp_path / ".hidden.yaml").write_text("nonsense: [")
    (tmp_path / "notes.txt").write_text("nonsense: [")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "x.yaml").write_text("nonsense: [")
    assert [rule.name for rule in load_rules([tmp_path]).rules] == ["one", "two"]


def test_a_config_map_mount_is_read_once(tmp_path: Path) -> None:
    """The kubelet's hidden directory and its visible links are the same file, not two with the same names."""
    version = tmp_path / "..2026_01_01"
    version.mkdir()
    (version / "rules.yaml").write_text(HEAD + f"- {{name: one, {HOT}, {TAIL}")
    (tmp_path / "..data").symlink_to(version.name)
    (tmp_path / "rules.yaml").symlink_to("..data/rules.yaml")
    assert len(load_rules([tmp_path]).rules) == 1


def test_a_directory_without_rules_is_a_mistake(tmp_path: Path) -> None:
    """A mount that failed must not look like a set without rules; overrides may be empty."""
    with pytest.raises(ConfigError, match=r"holds no \*\.yaml file"):
        load_rules([tmp_path])
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.yaml").write_text(HEAD + f"- {{name: one, {HOT}, {TAIL}")
    (tmp_path / "overrides").mkdir()
    assert load_rules([tmp_path / "rules"], overrides=[tmp_path / "overrides"]).rules


def test_several_documents_in_a_file() -> None:
    """Each document is a rule set of its own; empty ones are skipped."""
    text = HEAD + f"- {{name: one, {HOT}, {TAIL}---\n---\n{HEAD}- {{name: two, {HOT}, {TAIL}"
    assert [rule.name for rule in load_rule_texts([("rules", text)]).rules] == ["one", "two"]
