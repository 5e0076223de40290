"""``nodeguard explain``: what a rule, a signal or an Xid means, from the same data that the agent judges by."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from nodeguard.config.rules import load_rules
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.config.words import hint
from nodeguard.model.errors import UserError
from nodeguard.model.rule import Bare, Clear, Companion, Level, Reference, Rule, RuleSet
from nodeguard.model.signals import SIGNALS
from nodeguard.vendors.nvidia import xids


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.epilog = "example: nodeguard explain xid 79"
    parser.add_argument("kind", choices=("rule", "signal", "xid"), help="what to explain")
    parser.add_argument("name", help="its name, or an Xid's number")
    parser.add_argument("--rules", action="append", type=Path, metavar="DIR",
                        help="rules to use instead of the shipped ones; may be repeated")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the explanation; UserError for an unknown name."""
    rules = load_rules(args.rules or [shipped_rules_dir()])
    explain = {"rule": _rule, "signal": _signal, "xid": _xid}[args.kind]
    print(*explain(args.name, rules), sep="\n")
    return 0


def _rule(name: str, rules: RuleSet) -> Iterable[str]:
    rule = next((one for one in rules.rules if one.name == name), None)
    if rule is None:
        raise UserError(f"no rule is called {name!r}{hint(name, [one.name for one in rules.rules])}")
    yield f"{rule.name} ({rule.origin})"
    yield f"  looks at   {rule.signal}: {SIGNALS[rule.signal].help}"
    yield from (f"  where      {matcher}" for matcher in map(_matcher, rule.match))
    yield f"  fires      {_test(rule)}"
    yield from (f"  requires   {_companion(one)}" for one in rule.require)
    yield f"  clears     {_clear(rule)}"
    yield f"  severity   {rule.severity}"
    yield f"  action     {rule.action}"
    yield f"  effect     {rule.effect}{' (observed only: event at most)' if rule.observe else ''}, scope {rule.scope}"
    if rule.condition:
        yield f"  condition  {rule.condition}"
    yield f"  says       {rule.message}"
    if rule.runbook:
        yield f"  runbook    {rule.runbook}"


def _matcher(matcher: object) -> str:
    name, any_of = getattr(matcher, "name", ""), getattr(matcher, "any_of", ())
    regex, negated = getattr(matcher, "regex", None), getattr(matcher, "negated", False)
    wanted = f"matches {regex}" if regex else f"is {' or '.join(map(str, any_of))}"
    return f"{name} {'not: ' if negated else ''}{wanted}"


def _test(rule: Rule) -> str:
    test = _level(rule.test) if isinstance(rule.test, Level) else str(rule.test)
    if isinstance(rule.test, Bare):
        test = "on every occurrence"
    if rule.hold.seconds:
        test += f" for {rule.hold.seconds:g} s"
    elif rule.hold.samples > 1:
        test += f" for {rule.hold.samples} samples"
    if rule.across is not None:
        test += f", on {rule.across.at_least or 'all'} devices of kind {rule.across.kind}"
    return test


def _level(level: Level) -> str:
    operand = level.operand
    if isinstance(operand, Reference):
        shown = operand.signal + (f" {operand.plus:+g}" if operand.plus else "")
    elif isinstance(operand, tuple):
        shown = " or ".join(map(str, operand))
    else:
        shown = f"{operand:g}"
    return f"{level.operator} {shown}"


def _companion(companion: Companion) -> str:
    return f"{companion.signal} {_level(companion.level)}"


def _clear(rule: Rule) -> str:
    clear = rule.clear
    if clear == Clear():
        return "when the test is false for as long (at least 3 polls), or nothing new comes for the window"
    parts = []
    if clear.on is not None:
        parts.append({"never": "when a person clears it"}.get(clear.on, f"on evidence of a {clear.on} or more"))
    if clear.level is not None:
        parts.append(f"when it {_level(clear.level)}")
    if clear.after is not None:
        parts.append(f"after {clear.after:g} s")
    if clear.while_ is not None:
        parts.append(f"while {_companion(clear.while_)}")
    return ", ".join(parts)


def _signal(name: str, rules: RuleSet) -> Iterable[str]:
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


def _xid(text: str, rules: RuleSet) -> Iterable[str]:
    if not text.isdecimal():
        raise UserError(f"an Xid is a number, not {text!r}")
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
    names = [one.name for one in rules.rules if one.signal == "gpu_xid" and _takes(one, code)]
    yield f"  rules   {', '.join(names) or 'none by its number alone'}"


def _takes(rule: Rule, code: int) -> bool:
    return any(matcher.name == "code" and code in matcher.any_of and not matcher.negated for matcher in rule.match)
