"""The ``told`` entry of a recording: a Batch as it is, for what no raw entry gives exactly."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, get_args

from nodeguard.model.device import KINDS, Device, kind_of
from nodeguard.model.sample import Attribute, Batch, Event, Fact, Labels, PodRef, Sample, Told, Value
from nodeguard.model.signals import SIGNALS
from nodeguard.sources.recording import checks
from nodeguard.sources.recording.checks import Report

_KEYS = ("source", "samples", "events", "facts", "then", "complete", "counts")
_EVENT_KEYS = ("signal", "device", "attributes", "stamp", "text", "at", "key")


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).removeprefix("_")


FACTS: Mapping[str, type] = {_snake(fact.__name__): fact for fact in get_args(Fact)}
"""Word in a recording → the fact; ``source_state`` is a SourceState."""


class _FormError(ValueError):
    """A value that has not its form; the message says which."""


def encode(batch: Batch) -> dict[str, Any]:
    """A Batch as JSON values."""
    entry: dict[str, Any] = {"source": batch.source, **_encode_part(Told(batch.samples, batch.events, batch.facts))}
    if batch.then:
        entry["then"] = [_encode_part(part) for part in batch.then]
    if batch.complete:
        entry["complete"] = True
    if batch.counts:
        entry["counts"] = dict(batch.counts)
    return entry


def _encode_part(told: Told) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    if told.facts:
        entry["facts"] = [{_snake(type(fact).__name__): _encode_fact(fact)} for fact in told.facts]
    if told.samples:
        entry["samples"] = [[*sample[:3], dict(sample.labels)] if sample.labels else list(sample[:3])
                            for sample in told.samples]
    if told.events:
        entry["events"] = [_encode_event(event) for event in told.events]
    return entry


def _encode_event(event: Event) -> dict[str, Any]:
    entry: dict[str, Any] = {"signal": event.signal, "device": event.device, "attributes": dict(event.attributes),
                             "stamp": event.stamp, "text": event.text, "at": event.at, "key": event.key}
    return {name: value for name, value in entry.items() if value not in (None, "", {})}


def _encode_fact(fact: Fact) -> dict[str, Any]:
    values = ((one, getattr(fact, one.name)) for one in fields(fact))
    return {one.name: _encode_value(value) for one, value in values if value != _default(one)}


def _default(one: "Field[Any]") -> object:
    return one.default_factory() if one.default_factory is not MISSING else one.default


def _encode_value(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, PodRef):
        return {"uid": value.uid, "namespace": value.namespace, "name": value.name}
    if isinstance(value, Mapping):
        return {key: _encode_value(one) for key, one in value.items()}
    return [_encode_value(one) for one in value] if isinstance(value, tuple) else value


def decode(entry: Any, report: Report) -> Batch | None:
    """The Batch of a ``told`` entry; None, and a report, when it has no such form."""
    try:
        return _batch(_mapping(entry, _KEYS))
    except _FormError as error:
        report(f"told: {error}")
        return None


def _batch(entry: Mapping[Any, Any]) -> Batch:
    first = _part(entry)
    return Batch(source=_text(entry.get("source")), samples=first.samples, events=first.events, facts=first.facts,
                 then=tuple(_part(_mapping(one, _KEYS)) for one in _list(entry.get("then", []))),
                 complete=_boolean(entry.get("complete", False)), counts=_counts(entry.get("counts", {})))


def _part(entry: Mapping[Any, Any]) -> Told:
    return Told(tuple(map(_sample, _list(entry.get("samples", [])))),
                tuple(map(_event, _list(entry.get("events", [])))), tuple(map(_fact, _list(entry.get("facts", [])))))


def _sample(entry: object) -> Sample:
    items = _list(entry)
    if len(items) not in (3, 4):
        raise _FormError(f"a sample is [signal, device, value] or [signal, device, value, labels], not {entry!r}")
    name, device, value, *labels = items
    if _signal(name).kind == "event":
        raise _FormError(f"{name} is an event and has no samples")
    return Sample(name, _device(device), _value(value), _labels(labels[0]) if labels else ())


def _signal(name: object) -> Any:
    if not isinstance(name, str) or name not in SIGNALS:
        raise _FormError(f"no signal is called {name!r}{checks.suggestion(str(name), SIGNALS)}")
    return SIGNALS[name]


def _labels(entry: object) -> Labels:
    return tuple((_text(name), _text(value)) for name, value in _mapping(entry).items())


def _event(entry: object) -> Event:
    entry = _mapping(entry, _EVENT_KEYS)
    name = entry.get("signal")
    if _signal(name).kind != "event":
        raise _FormError(f"{name} is no event")
    attributes = {_text(key): _attribute(value) for key, value in _mapping(entry.get("attributes", {})).items()}
    return Event(str(name), _device(entry.get("device")), attributes, _seconds_or_none(entry.get("stamp")),
                 _text(entry.get("text", "")), _seconds_or_none(entry.get("at")), _text(entry.get("key", "")))


def _fact(entry: object) -> Fact:
    entry = _mapping(entry)
    word = next(iter(entry), "")
    if len(entry) != 1 or word not in FACTS:
        raise _FormError(f"a fact is one of {', '.join(FACTS)} with its values, not {entry!r}")
    kind, values = FACTS[word], _mapping(entry[word])
    known = {one.name: one for one in fields(kind)}
    for name in values.keys() - known.keys():
        raise _FormError(f"unknown key {name!r} in {word}{checks.suggestion(str(name), known)}")
    missing = [name for name, one in known.items() if _default(one) is MISSING and name not in values]
    if missing:
        raise _FormError(f"{word} needs {' and '.join(missing)}")
    fact: Fact = kind(**{name: _DECODE[known[name].type](value) for name, value in values.items()})
    return fact


def _list(value: object) -> list[Any]:
    if isinstance(value, list):
        return value
    raise _FormError(f"expected a list, not {checks.name_of(value)}")


def _mapping(value: object, valid: tuple[str, ...] | None = None) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise _FormError(f"expected a mapping, not {checks.name_of(value)}")
    for key in value if valid is not None else ():
        if key not in (valid or ()):
            raise _FormError(f"unknown key {key!r}{checks.suggestion(str(key), valid or ())}")
    return value


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise _FormError(f"expected text, not {checks.name_of(value)}")


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _FormError(f"expected true or false, not {value!r}")


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _FormError(f"expected a whole number, not {value!r}")


def _seconds(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and checks.finite(value):
        return value
    raise _FormError(f"expected seconds, not {value!r}")


def _seconds_or_none(value: object) -> float | None:
    return None if value is None else _seconds(value)


def _value(value: object) -> Value | None:
    return value if value is None or isinstance(value, str) else _seconds(value)


def _attribute(value: object) -> Attribute:
    return value if isinstance(value, bool | str) else _seconds(value)


def _device(value: object) -> Device:
    if isinstance(value, str) and kind_of(Device(value)) in KINDS:
        return Device(value)
    raise _FormError(f"{value!r} is no device: its kind is one of {', '.join(KINDS)}")


def _devices(value: object) -> frozenset[Device]:
    return frozenset(map(_device, _list(value)))


def _counts(value: object) -> Mapping[str, int]:
    return {_text(name): _whole(count) for name, count in _mapping(value).items()}


def _pods(value: object) -> tuple[PodRef, ...]:
    pods = (_mapping(one, ("uid", "namespace", "name")) for one in _list(value))
    return tuple(PodRef(*(_text(pod.get(key, "")) for key in ("uid", "namespace", "name"))) for pod in pods)


def _by_device(decode_one: Callable[[object], Any]) -> Callable[[object], Mapping[Device, Any]]:
    return lambda value: {_device(name): decode_one(one) for name, one in _mapping(value).items()}


def _maybe(decode_one: Callable[[object], Any]) -> Callable[[object], Any]:
    return lambda value: None if value is None else decode_one(value)


_DECODE: Mapping[Any, Callable[[object], Any]] = {
    str: _text, float: _seconds, int: _whole, bool: _boolean, Device: _device,
    float | None: _seconds_or_none, Device | None: _maybe(_device), frozenset[Device]: _devices,
    frozenset[Device] | None: _maybe(_devices), frozenset[str]: lambda value: frozenset(map(_text, _list(value))),
    Mapping[str, int]: _counts, Mapping[Device, tuple[PodRef, ...]]: _by_device(_pods),
    Mapping[Device, tuple[Device, ...]]: _by_device(lambda value: tuple(map(_device, _list(value)))),
}
"""By the type of a fact's field. A fact with a field of another type needs one more row, which a test asks for."""


def unreadable_fields() -> Iterator[str]:
    """Fields of facts that :data:`_DECODE` has no row for; none, as a test holds."""
    return (f"{kind.__name__}.{one.name}: {one.type}" for kind in FACTS.values() for one in fields(kind)
            if one.type not in _DECODE)
