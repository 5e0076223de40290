"""What the Node should say, from the open faults and from what has been judged."""

from collections.abc import Callable, Iterable

from nodeguard.engine.compile import Compiled
from nodeguard.model.fault import EFFECTS, Fault
from nodeguard.model.intent import Condition, Status
from nodeguard.model.text import camel_case

MESSAGE_LIMIT = 1000
"""Characters; Kubernetes takes 32 KiB, people take a line or two."""

_CONDITION = EFFECTS.index("condition")
_NOSCHEDULE = EFFECTS.index("noschedule")


def feeding(faults: Iterable[Fault]) -> list[Fault]:
    """The faults that the Node tells: effect ``condition`` or more, strongest first."""
    return [fault for fault in faults if EFFECTS.index(fault.effect) >= _CONDITION]


def taint_of(faults: Iterable[Fault]) -> str | None:
    """The taint's value: the condition of the strongest fault that asks for one."""
    return next((fault.condition for fault in faults if EFFECTS.index(fault.effect) >= _NOSCHEDULE), None)


def conditions(rules: Iterable[Compiled], faults: list[Fault], kinds: set[str],
               judged: Callable[[Compiled], bool]) -> tuple[Condition, ...]:
    """Every condition type that the rules feed and that has a device kind here, sorted by type."""
    by_type: dict[str, list[Compiled]] = {}
    for one in rules:
        if one.rule.condition is not None:
            by_type.setdefault(one.rule.condition, []).append(one)
    found = []
    for name, feeders in sorted(by_type.items()):
        open_now = [fault for fault in faults if fault.condition == name]
        if open_now:
            found.append(_true(name, open_now))
        elif any(_has_kind(one, kinds) for one in feeders):
            known = all(judged(one) for one in feeders if _has_kind(one, kinds))
            found.append(_clear(name, known=known))
    return tuple(found)


def _has_kind(one: Compiled, kinds: set[str]) -> bool:
    # `node` stands in a signal's kinds also for "device unknown": the first kind is the one it is about
    return one.signal.devices[0] in kinds


def _true(name: str, faults: list[Fault]) -> Condition:
    return Condition(type=name, status="True", reason=camel_case(faults[0].rule), message=_message(faults),
                     since=min(fault.since for fault in faults))


def _clear(name: str, *, known: bool) -> Condition:
    status: Status = "False" if known else "Unknown"
    return Condition(type=name, status=status, reason="NoFault" if known else "NotJudgedYet",
                     message="no fault is open" if known else "not every source has been read yet", since=None)


def _message(faults: list[Fault]) -> str:
    texts = list(dict.fromkeys(fault.message for fault in faults))
    text = ""
    for number, one in enumerate(texts):
        joined = f"{text}; {one}" if text else one[:MESSAGE_LIMIT]
        if len(joined) > MESSAGE_LIMIT:
            return f"{text}; and {len(texts) - number} more"
        text = joined
    return text
