"""The same explanations as pages of Markdown: ``docs/rules.md``, ``docs/signals.md`` and ``docs/xids.md``."""

from collections.abc import Iterator

from nodeguard.app.explain import clear_of, companion_of, matcher_of, takes, test_of
from nodeguard.model.rule import Rule, RuleSet
from nodeguard.model.signals import SIGNALS, Signal
from nodeguard.vendors.nvidia import xids

_NOTE = "*Written by `nodeguard explain pages docs` (`make docs`) from what the agent judges by. Do not edit.*"


def pages(rules: RuleSet) -> dict[str, str]:
    """File name → text."""
    return {"rules.md": _page("Rules", _rules(rules)), "signals.md": _page("Signals", _signals(rules)),
            "xids.md": _page("Xids", _xids(rules))}


def _page(title: str, lines: Iterator[str]) -> str:
    return "\n".join([f"# {title}", "", _NOTE, "", *lines]) + "\n"


def _rules(rules: RuleSet) -> Iterator[str]:
    yield "| rule | severity | action | effect | condition |"
    yield "|---|---|---|---|---|"
    for rule in rules.rules:
        yield (f"| [{rule.name}](#{rule.name}) | {rule.severity} | {rule.action} | {_effect(rule)} "
               f"| {rule.condition or ''} |")
    for rule in rules.rules:
        yield from _rule(rule)


def _effect(rule: Rule) -> str:
    return f"{rule.effect}, observed only" if rule.observe else rule.effect


def _rule(rule: Rule) -> Iterator[str]:
    yield from ("", f"## {rule.name}", "", f"> {_cell(rule.message)}", "")
    yield f"- looks at [{rule.signal}](signals.md#{rule.signal}): {SIGNALS[rule.signal].help}"
    yield from (f"- where {matcher_of(one)}" for one in rule.match)
    yield f"- fires: {test_of(rule)}"
    yield from (f"- requires {companion_of(one)}" for one in rule.require)
    yield f"- clears {clear_of(rule)}"
    yield f"- severity {rule.severity}, action {rule.action}, effect {_effect(rule)}, scope {rule.scope}"
    if rule.condition:
        yield f"- condition {rule.condition}"
    if rule.mutes:
        yield f"- mutes {', '.join(rule.mutes)}"
    if rule.runbook:
        yield f"- runbook: {rule.runbook}"


def _signals(rules: RuleSet) -> Iterator[str]:
    for signal in SIGNALS.values():
        yield from _signal(signal, [rule.name for rule in rules.rules if rule.signal == signal.name])


def _signal(signal: Signal, rules: list[str]) -> Iterator[str]:
    yield from (f"## {signal.name}", "", f"{signal.help}.".replace("..", "."), "")
    yield f"- {signal.kind} of {', '.join(signal.devices)}, told by {', '.join(signal.sources)}"
    yield f"- metric `nodeguard_{signal.name}{'_total' if signal.kind == 'event' else ''}`"
    if signal.attributes:
        yield f"- attributes: {', '.join(signal.attributes)}"
    if signal.states:
        yield f"- states: {', '.join(signal.states)}"
    if signal.saturates_at is not None:
        yield f"- stops at {signal.saturates_at}, where its value is unknown"
    if rules:
        yield f"- rules: {', '.join(f'[{name}](rules.md#{name})' for name in rules)}"
    yield ""


def _xids(rules: RuleSet) -> Iterator[str]:
    yield "| Xid | name | meaning | class | action | effect | why | rules |"
    yield "|---|---|---|---|---|---|---|---|"
    for info in xids.table().values():
        taking = (f"[{rule.name}](rules.md#{rule.name})" for rule in rules.rules
                  if rule.signal == "gpu_xid" and takes(rule, info.code))
        cells = (info.code, info.identifier, info.meaning, info.xid_class, info.action, info.effect, info.why,
                 ", ".join(taking))
        yield f"| {' | '.join(_cell(str(cell)) for cell in cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
