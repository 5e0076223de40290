"""The list of Xid numbers, and that the shipped rules say the same of every number as the list."""

import functools
from collections.abc import Callable, Mapping

import pytest

from nodeguard.config.rules import load_rules
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.engine.predicates import compile_match
from nodeguard.model.fault import ACTIONS, EFFECTS, strongest
from nodeguard.model.rule import Bare, Rule
from nodeguard.model.sample import Attribute
from nodeguard.vendors.nvidia import nvlink5
from nodeguard.vendors.nvidia.xids import BY_WORDS, CLASSES, explain, table, xid_class

RETIREMENT = ("remap_pending", "retirement", "remap_failed", "unread")
REGISTERS = ("benign", "secondary", "marginal", "link_error", "other", "unread")


def nvlink5_words(code: int) -> tuple[str, ...]:
    """Every resolution that a line of an NVLink5 code can come to."""
    by_word = {nvlink5.resolve(code, "", word, -1, -1) for word in ("fatal", "nonfatal")}
    return (*sorted({rule.resolution for rule in nvlink5.SUB_RULES if rule.code == code} | by_word), "unread")


WORDS: Mapping[int, tuple[str, ...]] = {
    63: RETIREMENT, 64: RETIREMENT, 74: REGISTERS, **{code: nvlink5_words(code) for code in nvlink5.CODES}}


@functools.cache
def xid_rules() -> tuple[tuple[Rule, Callable[[Mapping[str, Attribute]], bool]], ...]:
    """Every shipped rule on gpu_xid, with its matcher."""
    rules = load_rules(sorted(shipped_rules_dir().glob("*.yaml"))).rules
    return tuple((rule, compile_match(rule.match)) for rule in rules if rule.signal == "gpu_xid")


def matching(attributes: Mapping[str, Attribute]) -> list[Rule]:
    """The rules on gpu_xid that an occurrence concerns."""
    return [rule for rule, matches in xid_rules() if matches(attributes)]


def bare_rules(attributes: Mapping[str, Attribute]) -> list[Rule]:
    """Those of them that the first occurrence opens."""
    return [rule for rule in matching(attributes) if isinstance(rule.test, Bare)]


def occurrence(code: int, **more: Attribute) -> dict[str, Attribute]:
    """Attributes as every source gives them."""
    return {"code": code, "class": xid_class(code), **more}


def test_the_list_is_whole() -> None:
    """Every number from 1 to 176 is there once, in order."""
    assert list(table()) == list(range(1, 177))


def test_every_row_is_complete() -> None:
    """Every row uses the scales' words, and gives a reason."""
    for info in table().values():
        assert info.xid_class in CLASSES, info
        assert info.action in ACTIONS, info
        assert info.effect in EFFECTS, info
        assert info.identifier.isidentifier(), info
        assert info.meaning, info
        assert info.why.endswith("."), info


@pytest.mark.parametrize("code", [0, 177, 999, -1])
def test_unknown_numbers(code: int) -> None:
    """A number outside the list has no row, is of class unknown, and opens a condition at most."""
    assert explain(code) is None
    (rule,) = bare_rules(occurrence(code))
    assert (rule.name, rule.action, rule.effect) == ("gpu-xid-unknown", "none", "condition")


def test_exactly_one_rule_says_what_the_list_says() -> None:
    """A number that decides alone opens one fault, with the list's action and effect."""
    for code in sorted(set(table()) - BY_WORDS):
        info = table()[code]
        (rule,) = bare_rules(occurrence(code))
        assert (code, rule.action, rule.effect) == (code, info.action, info.effect)


@pytest.mark.parametrize("code", WORDS)
def test_exactly_one_rule_for_every_resolution(code: int) -> None:
    """Whatever the words resolve to, one rule takes it; the list tells the worst of them, repetition included."""
    effects: set[str] = set()
    actions: set[str] = set()
    for resolution in WORDS[code]:
        (first,) = bare_rules(occurrence(code, resolution=resolution))
        rules = [first, *matching(occurrence(code, resolution=resolution))]
        effects |= {rule.effect for rule in rules}
        actions |= {rule.action for rule in rules}
    info = table()[code]
    assert (strongest(EFFECTS, *effects), strongest(ACTIONS, *actions)) == (info.effect, info.action)


@pytest.mark.parametrize("code", WORDS)
def test_a_number_without_words_has_a_rule(code: int) -> None:
    """NVML tells numbers only: they are judged like a line that cannot be read."""
    assert bare_rules(occurrence(code)) == bare_rules(occurrence(code, resolution="unread"))


@pytest.mark.parametrize("code", nvlink5.CODES)
def test_injected_errors_are_events(code: int) -> None:
    """A test of the operator's own touches nothing."""
    for resolution in nvlink5_words(code)[:-1]:
        (rule,) = bare_rules(occurrence(code, resolution=resolution, injected=True))
        assert rule.effect == "event"


def test_79_and_154_are_judged_elsewhere() -> None:
    """79 by gpu-lost alone, 154 by the state that it changes; only an unreadable 154 is an event."""
    assert bare_rules(occurrence(79)) == []
    assert bare_rules(occurrence(154)) == []
    for resolution in ("unparsed", "no_device"):
        (rule,) = bare_rules(occurrence(154, resolution=resolution))
        assert (rule.name, rule.severity, rule.effect) == ("gpu-recovery-unread", "warning", "event")


def test_application_numbers_never_touch_the_node() -> None:
    """Consensus of every source, and the catalogue where gpud alone disagrees."""
    for code in (13, 31, 32, 43, 45, 60, 68, 69, 94):
        assert table()[code].effect in ("none", "event")


def test_cleanup_is_never_counted() -> None:
    """45 follows every crash: no rule but its own may match it."""
    assert [rule.name for rule in matching(occurrence(45))] == ["gpu-xid-cleanup"]
