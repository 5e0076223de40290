"""Queries: selectors as a test of an object (Kubernetes documentation, "Labels and Selectors"), and numbers."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from nodeguard.sim.apiserver.errors import Refusal

Match = Callable[[Mapping[str, Any]], bool]

_SET = re.compile(r"\s*([^\s=!,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUAL = re.compile(r"\s*([^\s=!,()]+)\s*(==|=|!=)\s*([^\s=!,()]*)\s*")
_EXISTS = re.compile(r"\s*(!?)\s*([^\s=!,()]+)\s*")


def selector(labels: str, fields: str) -> Match:
    """Whether an object meets both. Raises :class:`Refusal` 400 for one that cannot be parsed."""
    tests = [_label_test(term) for term in _terms(labels)]
    tests += [_field_test(term) for term in fields.split(",") if term]
    return lambda item: all(test(item) for test in tests)


def field(item: Mapping[str, Any], path: str) -> str:
    """The text of a dotted path, empty when absent, as field selectors compare it."""
    value: Any = item
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def number(query: Mapping[str, str], name: str) -> int | None:
    """A whole number of a query, None when it is not there. Raises :class:`Refusal` 400 for anything else."""
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdecimal():
        raise Refusal(400, f"{name}: Invalid value: {text!r}: must be a whole number")
    return int(text)


def _terms(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    return [term for term in re.split(r",(?![^(]*\))", text) if term.strip()]


def _label_test(term: str) -> Match:
    if match := _SET.fullmatch(term):
        key, operator, listed = match.groups()
        values = {value.strip() for value in listed.split(",")}
        return lambda item: (_labels(item).get(key) in values) == (operator == "in")
    if match := _EQUAL.fullmatch(term):
        key, operator, value = match.groups()
        return lambda item: (_labels(item).get(key) == value) == (operator != "!=")
    if match := _EXISTS.fullmatch(term):
        absent, key = match.groups()
        return lambda item: (key in _labels(item)) != bool(absent)
    raise Refusal(400, f"unable to parse requirement: {term!r}")


def _field_test(term: str) -> Match:
    match = _EQUAL.fullmatch(term)
    if match is None:
        raise Refusal(400, f"invalid field selector: {term!r}")
    path, operator, value = match.groups()
    return lambda item: (field(item, path) == value) == (operator != "!=")


def _labels(item: Mapping[str, Any]) -> Mapping[str, Any]:
    labels: Mapping[str, Any] = item.get("metadata", {}).get("labels") or {}
    return labels
