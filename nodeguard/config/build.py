"""From a checked draft to the frozen :class:`nodeguard.model.rule.Rule`, with its hashes."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, replace

from nodeguard.config.draft import Draft
from nodeguard.config.schema import (
    AbsentModel,
    AcrossModel,
    ClearModel,
    CompanionModel,
    LevelKeys,
    MatchModel,
    NotRegexModel,
    ReferenceModel,
    RequirementModel,
    RuleModel,
    SamplesModel,
)
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
    Operator,
    Rate,
    Reference,
    Rule,
    Slow,
    Test,
)
from nodeguard.model.sample import Attribute
from nodeguard.model.signals import SIGNALS, Signal

JUDGING = ("signal", "kind", "match", "test", "hold", "require", "across", "clear")
"""Fields that decide when a fault opens and closes."""


def build_rule(draft: Draft) -> Rule:
    """The rule that a draft without problems describes."""
    model = draft.model
    signal = SIGNALS[model.signal]
    rule = Rule(
        name=model.name,
        signal=model.signal,
        kind=model.kind,
        match=tuple(_matchers(model, signal)),
        test=_test(model),
        hold=_hold(model.absent.for_ if model.absent is not None and model.for_ is None else model.for_),
        require=tuple(_slow(one) or _companion(one) for one in model.require or ()),
        across=_across(model.across),
        mutes=tuple(model.mutes or ()),
        severity=model.severity,
        action=model.action,
        effect=model.effect,
        scope=_scope(model, signal),
        condition=model.condition,
        clear=_clear(model.clear),
        message=model.message or f"{model.name} on {{device}}",
        runbook=model.runbook,
        observe=model.mode == "observe",
        judging_hash="",
        content_hash="",
        origin=f"{draft.node.at.file}:{draft.node.at.line}",
    )
    return _hashed(rule)


def digest(value: object) -> str:
    """The first 16 hex digits of the SHA-256 of ``value`` as canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _hashed(rule: Rule) -> Rule:
    fields = asdict(rule)
    for key in ("judging_hash", "content_hash", "origin"):
        del fields[key]
    judging = digest({key: fields[key] for key in JUDGING})
    return replace(rule, judging_hash=judging, content_hash=digest(fields))


def _scope(model: RuleModel, signal: Signal) -> str:
    if model.across is not None:
        return "node"
    return model.scope or ("device" if "gpu" in signal.devices else "node")


def _across(across: AcrossModel | None) -> Across | None:
    if across is None:
        return None
    return Across(across.kind, None if across.at_least == "all" else across.at_least)


def _matchers(model: RuleModel, signal: Signal) -> Iterator[Matcher]:
    for name, form in (model.match or {}).items():
        if isinstance(form, MatchModel):
            yield _negated_or_regex(name, form, signal)
        else:
            yield Matcher(name, any_of=_as_carried(form, signal))


def _negated_or_regex(name: str, form: MatchModel, signal: Signal) -> Matcher:
    if isinstance(form.not_, NotRegexModel):
        return Matcher(name, regex=form.not_.regex, negated=True)
    if form.not_ is not None:
        return Matcher(name, any_of=_as_carried(form.not_, signal), negated=True)
    return Matcher(name, regex=form.regex)


def _as_carried(values: list[str | float | bool], signal: Signal) -> tuple[Attribute, ...]:
    """Labels are text whatever a person writes (``link: 3``); attributes of events keep their type."""
    if signal.kind == "event":
        return tuple(values)
    return tuple(value if isinstance(value, str) else json.dumps(value) for value in values)


def _test(model: RuleModel) -> Test:
    if model.increase is not None:
        return Increase(model.increase.at_least, model.increase.within)
    if model.rate is not None:
        return Rate(model.rate.above, model.rate.over)
    if model.count is not None:
        return Count(model.count.at_least, model.count.within, model.count.distinct, tuple(model.count.same or ()))
    if model.left is not None:
        return Left(tuple(model.left))
    if isinstance(model.absent, AbsentModel):
        return Absent()
    return _level(model) or Bare()


_OPERATORS: tuple[Operator, ...] = ("above", "below", "is", "is_not")


def _level(keys: LevelKeys) -> Level | None:
    levels = keys.levels()
    return next((Level(key, _operand(levels[key])) for key in _OPERATORS if key in levels), None)


def _operand(operand: float | ReferenceModel | list[str | float]) -> float | Reference | tuple[str | float, ...]:
    if isinstance(operand, ReferenceModel):
        return Reference(operand.signal, operand.plus, operand.times)
    return tuple(operand) if isinstance(operand, list) else float(operand)


def _hold(form: float | SamplesModel | None) -> Hold:
    if form is None:
        return Hold()
    return Hold(samples=form.samples) if isinstance(form, SamplesModel) else Hold(seconds=form)


def _slow(required: RequirementModel) -> Slow | None:
    rate = required.rate
    return None if rate is None else Slow(required.signal, rate.below, rate.over, required.kind)


def _companion(companion: CompanionModel) -> Companion:
    level = _level(companion)
    if level is None:
        raise ValueError(f"companion {companion.signal} passed the schema without a comparison")
    return Companion(companion.signal, level)


def _clear(clear: ClearModel | None) -> Clear:
    if clear is None:
        return Clear()
    return Clear(clear.on, clear.after, _level(clear), None if clear.while_ is None else _companion(clear.while_))


def set_hash(rules: tuple[Rule, ...]) -> str:
    """The hash of a whole set: over the content hashes of its rules, in order."""
    return digest([rule.content_hash for rule in rules])
