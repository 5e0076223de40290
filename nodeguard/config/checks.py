"""What the fields of one rule say together: whether test, signal, references, scales and clear fit each other."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from nodeguard.config.draft import Draft, Finding
from nodeguard.config.fields import placeholders
from nodeguard.config.schema import LEVEL_KEYS, CompanionModel, LevelKeys, ReferenceModel, RequirementModel
from nodeguard.config.words import hint, shown
from nodeguard.model.errors import Problem
from nodeguard.model.fault import EFFECTS
from nodeguard.model.signals import SIGNALS, Signal

BLINDNESS = ("source_up", "source_stale", "source_stalled_seconds")
"""Signals about nodeguard's own sight: a source that cannot see is no reason to evict anybody."""

_PLACEHOLDERS = ("device", "pci", "value", "count")
_KINDS_OF_TEST = {
    "increase": ("counter",),
    "rate": ("counter",),
    "count": ("event",),
    "left": ("state",),
    "absent": ("gauge", "counter", "state"),
}

Check = Callable[[Draft, Signal], Iterator[Finding]]


def check_rule(rule: Draft) -> list[Problem]:
    """Every mistake in one rule, those of its single fields included."""
    signal = rule.signal
    found = chain(_scales(rule), chain.from_iterable(check(rule, signal) for check in _CHECKS) if signal else ())
    return [*rule.problems, *map(rule.problem, found)]


def device_kinds(rule: Draft) -> frozenset[str]:
    """Kinds of the devices that the rule looks at."""
    if rule.model.across is not None:
        return frozenset({rule.model.across.kind})
    if rule.model.kind is not None:
        return frozenset({rule.model.kind})
    return frozenset(rule.signal.devices if rule.signal else ())


def _scales(rule: Draft) -> Iterator[Finding]:
    model = rule.model
    if not rule.sound("effect"):
        return
    visible = EFFECTS.index(model.effect) >= EFFECTS.index("condition")
    if visible and rule.sound("condition") and model.condition is None:
        yield Finding(["effect"], f"effect '{model.effect}' needs a condition, the Node condition that it feeds")
    if not visible and model.condition is not None:
        message = f"effect '{model.effect}' has no condition: remove it or raise the effect"
        yield Finding(["condition"], message, key=True)
    if model.effect == "evict" and rule.sound("action") and model.action == "none":
        yield Finding(["effect"], "evict needs an action: pods leave so that the node can be repaired")
    if model.effect == "evict" and model.signal in BLINDNESS:
        yield Finding(["effect"], f"{model.signal} says what nodeguard cannot see: it may not evict")


def _test(rule: Draft, signal: Signal) -> Iterator[Finding]:
    keys = rule.test_keys
    if not keys and signal.kind != "event":
        yield Finding(["signal"], f"{signal.name} is a {signal.kind}: the rule needs a test, such as above or is")
    for extra in keys[1:]:
        yield Finding([extra], f"a rule has one test: '{keys[0]}' is given already", key=True)
    for key in keys:
        complaint = _misfit(key, signal)
        if complaint:
            yield Finding([key], complaint, key=True)
    for key in LEVEL_KEYS:
        if key in keys and not _misfit(key, signal):
            yield from _operand(rule.model, key, signal, signal, [key])


def _misfit(key: str, signal: Signal) -> str:
    """Why the test does not fit the kind of signal; empty when it does."""
    if key in _KINDS_OF_TEST:
        kinds = _KINDS_OF_TEST[key]
        return "" if signal.kind in kinds else f"'{key}' is for {_listed(kinds)} signals; {_described(signal)}"
    if key in ("above", "below"):
        return "" if _is_number(signal) else f"'{key}' needs a number; {_described(signal)}"
    fits = signal.kind in ("state", "gauge")
    return "" if fits else f"'{key}' needs a state or gauge; {_described(signal)}"


def _is_number(signal: Signal) -> bool:
    return signal.kind in ("gauge", "counter") or (signal.kind == "state" and not signal.states)


def _described(signal: Signal) -> str:
    article = "an" if signal.kind == "event" else "a"
    return f"{signal.name} is {article} {signal.kind}" + (" of words" if signal.states else "")


def _operand(
    keys: LevelKeys, key: str, compared: Signal, owner: Signal, path: Sequence[object],
) -> Iterator[Finding]:
    """What is wrong with one comparison of ``compared`` in a rule about ``owner``."""
    operand = keys.levels().get(key)
    if isinstance(operand, list):
        yield from _values(operand, compared, path)
    elif isinstance(operand, ReferenceModel):
        other = SIGNALS[operand.signal]
        if not _is_number(other):
            yield Finding([*path, "signal"], f"must be a signal with a number; {_described(other)}")
        yield from _same_device(other, owner, [*path, "signal"])


def _values(values: Sequence[str | float], signal: Signal, path: Sequence[object]) -> Iterator[Finding]:
    for index, value in enumerate(values):
        if signal.states and value not in signal.states:
            message = f"{signal.name} has no state {shown(value)}{hint(value, signal.states)}"
            yield Finding([*path, index], message)
        elif not signal.states and isinstance(value, str):
            yield Finding([*path, index], f"{signal.name} has numbers, not words such as {shown(value)}")


def _same_device(other: Signal, owner: Signal, path: Sequence[object]) -> Iterator[Finding]:
    if not set(other.devices) & set(owner.devices):
        message = f"{other.name} belongs to {_listed(other.devices)}, {owner.name} to {_listed(owner.devices)}"
        yield Finding(path, f"must be a signal of the same device: {message}")


def _listed(words: Sequence[str]) -> str:
    return " or ".join(words)


def _left(rule: Draft, signal: Signal) -> Iterator[Finding]:
    if signal.kind == "state":
        yield from _values(rule.model.left or (), signal, ["left"])


def _hold(rule: Draft, signal: Signal) -> Iterator[Finding]:
    if "for" not in rule.node.entries():
        return
    if signal.kind == "event":
        yield Finding(["for"], "an event does not last: 'for' is for tests of a level", key=True)
    elif rule.model.absent is not None and rule.model.absent.for_ is not None:
        yield Finding(["for"], "'absent' has its own 'for': give one of them", key=True)


def _attributes(rule: Draft, signal: Signal) -> Iterator[Finding]:
    for name in rule.model.match or {}:
        yield from _attribute(name, signal, ["match", name], key=True)
    count = rule.model.count
    if count is None:
        return
    if count.distinct is not None:
        yield from _attribute(count.distinct, signal, ["count", "distinct"])
    for index, name in enumerate(count.same or ()):
        yield from _attribute(name, signal, ["count", "same", index])


def _attribute(name: str, signal: Signal, path: Sequence[object], *, key: bool = False) -> Iterator[Finding]:
    if name not in signal.attributes:
        what = "attribute" if signal.kind == "event" else "label"
        yield Finding(path, f"{signal.name} has no {what} {shown(name)}{hint(name, signal.attributes)}", key)


def _companions(rule: Draft, signal: Signal) -> Iterator[Finding]:
    for index, companion in enumerate(rule.model.require or ()):
        yield from _requirement(companion, signal, ["require", index])
    if rule.model.clear is not None and rule.model.clear.while_ is not None:
        yield from _companion(rule.model.clear.while_, signal, ["clear", "while"])


def _requirement(required: RequirementModel, owner: Signal, path: Sequence[object]) -> Iterator[Finding]:
    if required.rate is None:
        yield from _companion(required, owner, path)
        return
    other = SIGNALS[required.signal]
    if other.kind != "counter":
        yield Finding([*path, "rate"], f"'rate' is for counter signals; {_described(other)}", key=True)
    if other == owner:
        yield Finding([*path, "signal"], "must be another signal than the rule's own")
    if required.kind is None:
        yield from _same_device(other, owner, [*path, "signal"])
    elif required.kind not in other.devices:
        yield Finding([*path, "kind"], f"{other.name} belongs to {_listed(other.devices)}, not {required.kind}")


def _companion(companion: CompanionModel, owner: Signal, path: Sequence[object]) -> Iterator[Finding]:
    other = SIGNALS[companion.signal]
    if other.kind == "event":
        yield Finding([*path, "signal"], f"must be a signal with a value; {_described(other)}")
        return
    yield from _same_device(other, owner, [*path, "signal"])
    for key in companion.levels():
        complaint = _misfit(key, other)
        if complaint:
            yield Finding([*path, key], complaint, key=True)
        else:
            yield from _operand(companion, key, other, owner, [*path, key])


def _clear(rule: Draft, signal: Signal) -> Iterator[Finding]:
    clear = rule.model.clear
    if clear is None:
        if signal.kind == "event" and not rule.test_keys and rule.sound("clear"):
            yield Finding(["signal"], "a bare event rule needs 'clear' with on or after: nothing else ends its faults")
        return
    for key in clear.levels():
        complaint = _misfit(key, signal)
        if rule.test_keys and rule.test_keys[0] not in LEVEL_KEYS:
            yield Finding(["clear", key], f"'{key}' in clear is only for tests of a level", key=True)
        elif complaint:
            yield Finding(["clear", key], complaint, key=True)
        else:
            yield from _operand(clear, key, signal, signal, ["clear", key])


def _kind(rule: Draft, signal: Signal) -> Iterator[Finding]:
    kind = rule.model.kind
    if kind is None:
        return
    if kind not in signal.devices:
        yield Finding(["kind"], f"{signal.name} belongs to {_listed(signal.devices)}, not {kind}")
    if signal.kind == "event" or rule.model.absent is not None or rule.model.across is not None:
        yield Finding(["kind"], "'kind' is for tests of single readings: no event, absent or across", key=True)


def _across(rule: Draft, signal: Signal) -> Iterator[Finding]:
    across = rule.model.across
    if across is None:
        return
    if across.kind not in signal.devices:
        yield Finding(["across", "kind"], f"{signal.name} belongs to {_listed(signal.devices)}, not {across.kind}")
    if signal.kind == "event" and not rule.test_keys:
        yield Finding(["across"], "a bare event cannot be judged across devices: add a count", key=True)
    if rule.model.scope == "device":
        yield Finding(["scope"], "a rule with 'across' speaks of the node: its scope is node")


def _placeholders(rule: Draft, signal: Signal) -> Iterator[Finding]:
    known = (*_PLACEHOLDERS, *signal.attributes)
    for name in placeholders(rule.model.message or ""):
        if name not in known:
            yield Finding(["message"], f"unknown placeholder {{{name}}}{hint(name, known)}")


_CHECKS: tuple[Check, ...] = (
    _test, _left, _hold, _attributes, _companions, _clear, _kind, _across, _placeholders,
)
