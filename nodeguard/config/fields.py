"""Types of single fields of rule files: what they accept, what they say when they refuse, their JSON Schema."""

import re
import string
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from nodeguard.config.durations import PATTERN, parse_positive_duration
from nodeguard.config.regexes import MAX_LENGTH, linear_regex
from nodeguard.config.words import hint, shown
from nodeguard.model.intent import CONDITION_PATTERN
from nodeguard.model.signals import SIGNALS

T = TypeVar("T")

_KEBAB = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
_MAX_NAME = 63
_MAX_NUMBER = 1e18


@dataclass(frozen=True)
class OneOf:
    """Restricts text to a list of words and suggests the nearest one for any other."""

    what: str
    words: Collection[str]

    def check(self, value: str) -> str:
        """The value itself; ValueError when it is no such word."""
        if value not in self.words:
            raise ValueError(f"unknown {self.what} {shown(value)}{hint(value, self.words)}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "enum": list(self.words)}


@dataclass(frozen=True)
class _Listed:
    """Takes one value or a list of them; the JSON Schema allows both."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_as_list, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        many = handler(schema)
        return {"anyOf": [many["items"], many]}


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


OneOrMany = Annotated[list[T], Field(min_length=1), _Listed()]


def _state_value(value: object) -> str | float:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        # pydantic reports a ValueError at its place and lets a TypeError through
        raise ValueError(f"must be a word or a number, not {shown(value)}; put words such as true in quotes")  # noqa: TRY004
    return _finite(value)


def _finite(value: float) -> float:
    if not abs(value) <= _MAX_NUMBER:
        raise ValueError("must be a finite number")
    return value


def _match_scalar(value: object) -> str | float | bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str | int | float):
        raise ValueError("must be text, a number, true or false")  # noqa: TRY004 (as above)
    return value if isinstance(value, str) else _finite(value)


def _kebab(value: str) -> str:
    if re.fullmatch(_KEBAB, value) is None or len(value) > _MAX_NAME:
        raise ValueError(f"{shown(value)} must be kebab-case, such as gpu-hot, of at most {_MAX_NAME} characters")
    return value


def _condition(value: str) -> str:
    if re.fullmatch(CONDITION_PATTERN, value) is None or value.endswith("\n"):
        raise ValueError(f"{shown(value)} must match {CONDITION_PATTERN}")
    return value


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
    except ValueError as error:
        raise ValueError(f"{shown(value)} is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.netloc or any(map(str.isspace, value)):
        raise ValueError(f"{shown(value)} must be an http or https URL")
    return value


def placeholders(message: str) -> list[str]:
    """Names between braces in ``message``; ValueError when a brace stands alone or a name carries a format."""
    names = []
    for _, name, spec, conversion in string.Formatter().parse(message):
        if name is None:
            continue
        if spec or conversion or re.fullmatch(r"[A-Za-z_]\w*", name) is None:
            raise ValueError(f"placeholder {shown('{' + name + '}')} must be a plain name such as {{device}}")
        names.append(name)
    return names


def _message(value: str) -> str:
    try:
        placeholders(value)
    except ValueError as error:
        raise ValueError(f"{error}; write {{{{ and }}}} for braces") from error
    return value


DurationText = Annotated[
    float, PlainValidator(parse_positive_duration), WithJsonSchema({"type": "string", "pattern": PATTERN}),
]
KebabName = Annotated[str, AfterValidator(_kebab), Field(json_schema_extra={"pattern": _KEBAB})]
SignalName = Annotated[str, OneOf("signal", tuple(SIGNALS))]
ConditionType = Annotated[str, AfterValidator(_condition), Field(json_schema_extra={"pattern": CONDITION_PATTERN})]
MessageText = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_message)]
Url = Annotated[str, Field(max_length=500), AfterValidator(_url)]
Regex = Annotated[str, AfterValidator(linear_regex), Field(json_schema_extra={"maxLength": MAX_LENGTH})]
StateValue = Annotated[
    str | float, PlainValidator(_state_value), WithJsonSchema({"type": ["string", "number"]}),
]
MatchScalar = Annotated[
    str | float | bool, PlainValidator(_match_scalar), WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
