"""pydantic's errors as problems with a line, a column and a sentence for people."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from nodeguard.config.words import hint, nearest, shown
from nodeguard.config.yamltree import Node
from nodeguard.model.errors import Problem

_MUST_BE = {
    "string_type": "text (put it in quotes)",
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "finite_number": "a finite number",
}


def problems_of(
    error: ValidationError, model: type[BaseModel], node: Node, subject: str | Callable[[Sequence[object]], str],
) -> Iterator[Problem]:
    """Every mistake that ``model`` found in ``node``, at its place. ``subject`` may depend on the path to it.

    A missing key is left out when a misspelt one beside it says the same.
    """
    details = error.errors(include_url=False)
    misspelt = {(detail["loc"][:-1], _meant(detail, model)) for detail in details if detail["type"] == _UNKNOWN_KEY}
    for detail in details:
        loc = detail["loc"]
        if detail["type"] == "missing" and (loc[:-1], str(loc[-1])) in misspelt:
            continue
        at = node.position(loc, key=detail["type"] == _UNKNOWN_KEY)
        yield Problem(*at, subject if isinstance(subject, str) else subject(loc), _sentence(detail, model))


_UNKNOWN_KEY = "extra_forbidden"


def _meant(detail: ErrorDetails, model: type[BaseModel]) -> str | None:
    return nearest(str(detail["loc"][-1]), keys_at(model, detail["loc"][:-1]))


def _sentence(detail: ErrorDetails, model: type[BaseModel]) -> str:
    loc, kind = detail["loc"], detail["type"]
    key = str(loc[-1]) if loc else ""
    if kind in (_UNKNOWN_KEY, "invalid_key"):
        return f"unknown key {shown(key)}{hint(key, keys_at(model, loc[:-1]))}"
    if kind == "missing":
        return f"key '{key}' is missing"
    said = _complaint(detail)
    named = next((step for step in reversed(loc) if isinstance(step, str) and step not in _BRANCHES), "")
    return f"'{named}' {said}" if named and said.startswith(_VERBS) else said


def _complaint(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "value_error":
        return str(context.get("error"))
    if kind == "too_short":
        return "must not be empty"
    must_be = _MUST_BE.get(kind) or (context.get("expected") if kind == "literal_error" else None)
    if must_be is not None:
        return f"must be {must_be}, not {shown(detail['input'])}"
    return detail["msg"].replace("Input should", "must").replace("String should", "must")


_BRANCHES = ("plain", "mapping", "number", "word", "[key]")
"""Names of union branches in pydantic's locations."""
_VERBS = ("must ", "needs ", "may ", "is ", "has ", "can ", "repeats ", "ends ")


def keys_at(model: type[BaseModel], loc: Sequence[object]) -> Collection[str]:
    """Keys that the schema knows in the mapping at ``loc``."""
    models = [model]
    for step in loc:
        fields = [field for one in models for field in one.model_fields.items()]
        annotations = [info.annotation for name, info in fields if step in (name, info.alias)]
        models = [found for annotation in annotations for found in _models_in(annotation)] or models
    return [info.alias or name for one in models for name, info in one.model_fields.items()]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
