"""What a rule, a signal or an Xid means, in words, from the same data that the agent judges by."""

from collections.abc import Iterable

from nodeguard.config.words import hint
from nodeguard.model.errors import UserError
from nodeguard.model.rule import (
    Absent,
    Clear,
    Companion,
    Count,
    Increase,
    Left,
    Level,
    Matcher,
    Rate,
    Reference,
    Rule,
    RuleSet,
    Slow,
)
from nodeguard.model.signals import SIGNALS
from nodeguard.vendors.nvidia import xids

_OPERATORS = {"above": "is above", "below": "is below", "is": "is", "is_not": "is not"}

XID_DIGITS = 9
"""The driver's numbers have three."""


def rule_called(name: str, rules: RuleSet) -> Rule:
    """The rule of this name. UserError: there is none."""
    rule = next((one for one in rules.rules if one.name == name), None)
    if rule is None:
        raise UserError(f"no rule is called {name!r}{hint(name, [one.name for one in rules.rules])}")
    return rule


def rule_lines(name: str, rules: RuleSet) -> Iterable[str]:
    """A rule of ``rules``. UserError: there is none of this name."""
    rule = rule_called(name, rules)
    yield f"{rule.name} ({rule.origin})"
    yield f"  looks at   {rule.signal}: {SIGNALS[rule.signal].help}"
    yield from (f"  where      {matcher}" for matcher in map(matcher_of, rule.match))
    yield f"  fires      {test_of(rule)}"
    yield from (f"  requires   {companion_of(one)}" for one in rule.require)
    yield f"  clears     {clear_of(rule)}"
    yield f"  severity   {rule.severity}"
    yield f"  action     {rule.action}"
    yield f"  effect     {rule.effect}{' (observed only: event at most)' if rule.observe else ''}, scope {rule.scope}"
    if rule.condition:
        yield f"  condition  {rule.condition}"
    yield f"  says       {rule.message}"
    if rule.runbook:
        yield f"  runbook    {rule.runbook}"


def matcher_of(matcher: Matcher) -> str:
    """A condition on an attribute or a label, in words."""
    wanted = f"matches {matcher.regex}" if matcher.regex else f"is {' or '.join(map(str, matcher.any_of))}"
    return f"{matcher.name} {'not: ' if matcher.negated else ''}{wanted}"


def test_of(rule: Rule) -> str:
    """When a rule fires, in words."""
    test = _bare_test(rule)
    if rule.hold.seconds:
        test += f" for {rule.hold.seconds:g} s"
    elif rule.hold.samples > 1:
        test += f" for {rule.hold.samples} samples"
    if rule.across is not None:
        test += f", on {rule.across.at_least or 'all'} devices of kind {rule.across.kind}"
    return test


def _bare_test(rule: Rule) -> str:
    match rule.test:
        case Level():
            words = f"when it {level(rule.test)}"
        case Increase(at_least, within):
            words = f"when it grows by {at_least:g} or more within {within:g} s"
        case Rate(above, over):
            words = f"when it grows by more than {above:g} a second over {over:g} s"
        case Count():
            words = _count(rule.test)
        case Left(states):
            words = f"when it was {' or '.join(map(str, states))} and is not any more"
        case Absent():
            words = "when it is expected and gone while its source is up"
        case _:
            words = "on every occurrence"
    return words


def _count(test: Count) -> str:
    what = f"occurrences with another {test.distinct}" if test.distinct else "occurrences"
    apart = f", apart per {', '.join(test.same)}" if test.same else ""
    return f"{test.at_least} {what} within {test.within:g} s{apart}"


def level(test: Level) -> str:
    """A comparison in words."""
    operand = test.operand
    if isinstance(operand, Reference):
        shown = (f"{operand.times:g} x " if operand.times != 1 else "") + operand.signal
        shown += f" {operand.plus:+g}" if operand.plus else ""
    elif isinstance(operand, tuple):
        shown = " or ".join(map(str, operand))
    else:
        shown = f"{operand:g}"
    return f"{_OPERATORS[test.operator]} {shown}"


def companion_of(companion: Companion | Slow) -> str:
    """A companion in words."""
    if isinstance(companion, Slow):
        where = f" on every {companion.kind}" if companion.kind else ""
        return f"{companion.signal} grows by less than {companion.below:g} a second over {companion.over:g} s{where}"
    return f"{companion.signal} {level(companion.level)}"


def clear_of(rule: Rule) -> str:
    """What ends a rule's fault, in words."""
    clear = rule.clear
    if clear == Clear():
        return "when the test is false for as long (at least 3 polls), or nothing new comes for the window"
    parts = []
    if clear.on is not None:
        parts.append({"never": "when a person clears it"}.get(clear.on, f"on evidence of a {clear.on} or more"))
    if clear.level is not None:
        parts.append(f"when it {level(clear.level)}")
    if clear.after is not None:
        parts.append(f"after {clear.after:g} s")
    if clear.while_ is not None:
        parts.append(f"while {companion_of(clear.while_)}")
    return ", ".join(parts)


def signal_lines(name: str, rules: RuleSet) -> Iterable[str]:
    """A signal of the catalogue, and the rules that look at it. UserError: there is none of this name."""
    signal = SIGNALS.get(name)
    if signal is None:
        raise UserError(f"no signal is called {name!r}{hint(name, SIGNALS)}")
    yield f"{signal.name} ({signal.kind} of {', '.join(signal.devices)})"
    yield f"  {signal.help}"
    yield f"  metric      nodeguard_{signal.name}{'_total' if signal.kind == 'event' else ''}"
    yield f"  told by     {', '.join(signal.sources)}"
    if signal.attributes:
        yield f"  attributes  {', '.join(signal.attributes)}"
    if signal.states:
        yield f"  states      {', '.join(signal.states)}"
    if signal.saturates_at is not None:
        yield f"  stops at    {signal.saturates_at}, where its value is unknown"
    yield f"  rules       {', '.join(one.name for one in rules.rules if one.signal == name) or 'none'}"


def xid_lines(text: str, rules: RuleSet) -> Iterable[str]:
    """An Xid by its number. UserError: it is no number of at most :data:`XID_DIGITS` digits."""
    if not (text.isascii() and text.isdecimal() and len(text) <= XID_DIGITS):
        raise UserError(f"an Xid is a number, not {text[:40]!r}")
    code = int(text)
    info = xids.explain(code)
    if info is None:
        yield f"Xid {code} is not in NVIDIA's list as nodeguard knows it: it is shown and never taints a node"
    else:
        yield f"Xid {code} {info.identifier}: {info.meaning}"
        yield f"  class   {info.xid_class}"
        yield f"  action  {info.action}"
        yield f"  effect  {info.effect}"
        yield f"  why     {info.why}"
    names = [one.name for one in rules.rules if one.signal == "gpu_xid" and takes(one, code)]
    yield f"  rules   {', '.join(names) or 'none by its number alone'}"


def takes(rule: Rule, code: int) -> bool:
    """Whether the rule names this Xid."""
    return any(matcher.name == "code" and code in matcher.any_of and not matcher.negated for matcher in rule.match)
