"""The words of the rule language and their shapes, as pydantic models; the published JSON Schema comes from them.

What one field alone can say is checked here, what several fields or rules say together in :mod:`.checks`.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic.json_schema import models_json_schema

from nodeguard.config.fields import (
    ConditionType,
    DurationText,
    KebabName,
    MatchScalar,
    MessageText,
    OneOf,
    OneOrMany,
    Regex,
    SignalName,
    StateValue,
    Url,
)
from nodeguard.model.device import KINDS
from nodeguard.model.fault import ACTIONS, EFFECTS, EVIDENCE, SCOPES, SEVERITIES

LEVEL_KEYS = ("above", "below", "is", "is_not")
TEST_KEYS = (*LEVEL_KEYS, "increase", "rate", "count", "left", "absent")
"""Keys of a rule of which it may have one; without any it is a bare event rule."""

AtLeastOne = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """A mapping without unknown keys and without conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _shape(value: object) -> str:
    return "mapping" if isinstance(value, dict) else "plain"


class ReferenceModel(Strict):
    """Another signal of the same device, times a factor, plus a constant."""

    signal: SignalName = Field(description="A numeric signal of the same device.")
    plus: float = Field(0.0, description="Added to that signal's value.")
    times: float = Field(1.0, description="Factor of that signal's value.")


Operand = Annotated[
    Annotated[float, Tag("plain")] | Annotated[ReferenceModel, Tag("mapping")], Discriminator(_shape),
]


class LevelKeys(Strict):
    """The comparisons; a rule or a companion has one of them."""

    above: Operand | None = Field(None, description="True while the value is more than this.")
    below: Operand | None = Field(None, description="True while the value is less than this.")
    is_: OneOrMany[StateValue] | None = Field(
        None, alias="is", description="True while the value is this, or one of these.")
    is_not: OneOrMany[StateValue] | None = Field(None, description="True while the value is known and none of these.")

    def levels(self) -> dict[str, float | ReferenceModel | list[str | float]]:
        """The comparisons that are given, by key."""
        given = {"above": self.above, "below": self.below, "is": self.is_, "is_not": self.is_not}
        return {key: operand for key, operand in given.items() if operand is not None}


class CompanionModel(LevelKeys):
    """A comparison of another signal of the same device."""

    tests: ClassVar[tuple[str, ...]] = LEVEL_KEYS
    signal: SignalName = Field(description="The other signal.")

    @model_validator(mode="after")
    def _one_comparison(self) -> "CompanionModel":
        given = len(self.levels()) + (getattr(self, "rate", None) is not None)
        if given != 1:
            raise ValueError(f"needs exactly one of {', '.join(self.tests)}")
        return self


class SlowModel(Strict):
    """How slowly a counter grew."""

    below: float = Field(gt=0, description="True while it grew by less than this a second.")
    over: DurationText = Field(description="Time over which the growth is averaged.")


class RequirementModel(CompanionModel):
    """A comparison of another signal of the same device, or the pace of a counter."""

    tests: ClassVar[tuple[str, ...]] = (*LEVEL_KEYS, "rate")
    rate: SlowModel | None = Field(None, description="True while a counter grows slowly.")
    kind: Annotated[str, OneOf("device kind", KINDS)] | None = Field(
        None, description="With rate: on every device of this kind, instead of the same device.")

    @model_validator(mode="after")
    def _kind_of_counters(self) -> "RequirementModel":
        if self.kind is not None and self.rate is None:
            raise ValueError("may have kind only together with rate")
        return self


class NotRegexModel(Strict):
    """A negated regular expression."""

    regex: Regex = Field(description="Matched against the whole value.")


class MatchModel(Strict):
    """A negated or a regular-expression match."""

    regex: Regex | None = Field(None, description="Matched against the whole value; linear-time forms only.")
    not_: Annotated[
        Annotated[OneOrMany[MatchScalar], Tag("plain")] | Annotated[NotRegexModel, Tag("mapping")],
        Discriminator(_shape),
    ] | None = Field(None, alias="not", description="Must be none of these.")

    @model_validator(mode="after")
    def _one_form(self) -> "MatchModel":
        if (self.regex is None) == (self.not_ is None):
            raise ValueError("needs exactly one of not, regex")
        return self


MatchForm = Annotated[
    Annotated[OneOrMany[MatchScalar], Tag("plain")] | Annotated[MatchModel, Tag("mapping")], Discriminator(_shape),
]


class SamplesModel(Strict):
    """A hold counted in samples."""

    samples: AtLeastOne = Field(description="Number of known samples in a row.")


HoldForm = Annotated[
    Annotated[DurationText, Tag("plain")] | Annotated[SamplesModel, Tag("mapping")], Discriminator(_shape),
]


class IncreaseModel(Strict):
    """A counter's growth in a window."""

    at_least: float = Field(gt=0, description="Growth that fires.")
    within: DurationText = Field(description="Length of the window.")


class RateModel(Strict):
    """A counter's growth a second, averaged over a window."""

    above: float = Field(ge=0, description="Growth a second that fires when exceeded.")
    over: DurationText = Field(description="Length of the window.")


class CountModel(Strict):
    """Events in a window."""

    at_least: AtLeastOne = Field(description="Number that fires.")
    within: DurationText = Field(description="Length of the window.")
    distinct: str | None = Field(None, description="Count different values of this attribute instead of events.")
    same: OneOrMany[str] | None = Field(None, description="Count apart per value of these attributes.")


class AbsentModel(Strict):
    """An expected device or sample is gone while its source is up."""

    for_: HoldForm | None = Field(None, alias="for", description="How long it must be gone.")


class AcrossModel(Strict):
    """Many devices judged together, on the node."""

    kind: Annotated[str, OneOf("device kind", KINDS)] = Field(description="Kind of the devices.")
    at_least: Annotated[
        Annotated[AtLeastOne, Tag("number")] | Annotated[Literal["all"], Tag("word")],
        Discriminator(lambda value: "word" if isinstance(value, str) else "number"),
    ] = Field(description="How many of them must fail the test at once, or all.")


class ClearModel(LevelKeys):
    """What ends the rule's faults."""

    on: Annotated[str, OneOf("evidence", EVIDENCE)] | None = Field(
        None, description="Evidence that cures it; never waits for a person.")
    after: DurationText | None = Field(None, description="Quiet time that ends it.")
    while_: CompanionModel | None = Field(
        None, alias="while", description="Time counts towards after only while this holds.")

    @model_validator(mode="after")
    def _says_something(self) -> "ClearModel":
        if not self.model_fields_set:
            raise ValueError("is empty: give on, after or a comparison, or leave clear out")
        if len(self.levels()) > 1:
            raise ValueError(f"may have only one of {', '.join(LEVEL_KEYS)}")
        if self.while_ is not None and self.after is None:
            raise ValueError("may have while only together with after")
        return self


class RuleModel(LevelKeys):
    """One rule: what to watch, when it is a fault, how bad it is and what it does to the node."""

    name: KebabName = Field(description="Unique; appears in metrics, events and condition reasons.")
    signal: SignalName = Field(description="What is watched.")
    kind: Annotated[str, OneOf("device kind", KINDS)] | None = Field(
        None, description="Judge only devices of this kind.")
    match: dict[str, MatchForm] | None = Field(None, description="Attributes or labels that it must have.")
    increase: IncreaseModel | None = Field(None, description="Fires when a counter grows so much in a window.")
    rate: RateModel | None = Field(None, description="Fires when a counter grows so fast.")
    count: CountModel | None = Field(None, description="Fires at so many events in a window.")
    left: OneOrMany[StateValue] | None = Field(
        None, description="Fires when it was seen in one of these states and now is in none of them.")
    absent: AbsentModel | None = Field(None, description="Fires when an expected device or sample is gone.")
    for_: HoldForm | None = Field(None, alias="for", description="How long the test must be true.")
    require: Annotated[list[RequirementModel], Field(min_length=1)] | None = Field(
        None, description="Comparisons of other signals of the same device that must hold too.")
    across: AcrossModel | None = Field(None, description="Judge many devices together, on the node.")
    mutes: OneOrMany[str] | None = Field(None, description="Rules whose faults this one explains.")
    severity: Annotated[str, OneOf("severity", SEVERITIES)] = Field(description="How bad it is.")
    action: Annotated[str, OneOf("action", ACTIONS)] = Field(description="What would cure it.")
    effect: Annotated[str, OneOf("effect", EFFECTS)] = Field(description="What it does to the node now.")
    scope: Annotated[str, OneOf("scope", SCOPES)] | None = Field(
        None, description="Whose pods an eviction is about.")
    condition: ConditionType | None = Field(
        None, description="Node condition it feeds: required from effect condition up, refused below.")
    clear: ClearModel | None = Field(None, description="What ends the fault; required on a bare event rule.")
    message: MessageText | None = Field(
        None, description="Text for people; {device} {pci} {value} {count} and the signal's attributes are filled in.")
    runbook: Url | None = Field(None, description="Where a person reads what to do.")
    mode: Annotated[str, OneOf("mode", ("enforce", "observe", "off"))] = Field(
        "enforce", description="observe: say only what it would do. off: leave the rule out.")


class MetadataModel(Strict):
    """A file's name, for people."""

    name: str = Field("", description="Name of the set.")
    description: str = Field("", description="What it is for.")


class RuleSetFile(Strict):
    """A file of rules. Each rule is checked by itself, as a :class:`RuleModel`."""

    api_version: Literal["nodeguard.io/v1"] = Field(alias="apiVersion", description="Version of this format.")
    kind: Literal["RuleSet"] = Field(description="RuleSet.")
    metadata: MetadataModel | None = Field(None, description="Name of the file, for people.")
    rules: list[Any] = Field(description="The rules.")


class OverrideHead(BaseModel):
    """An override in list form: the rule, the nodes, and any field of a rule, which is checked once merged."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    rule: str = Field(description="Name of the rule to change.")
    nodes: dict[str, str] | None = Field(None, description="Labels a node must carry for this to apply.")


class OverridesFile(Strict):
    """A file of overrides: fields that replace those of rules by name; null removes a field."""

    api_version: Literal["nodeguard.io/v1"] = Field(alias="apiVersion", description="Version of this format.")
    kind: Literal["Overrides"] = Field(description="Overrides.")
    metadata: MetadataModel | None = Field(None, description="Name of the file, for people.")
    overrides: Annotated[
        Annotated[dict[str, dict[str, Any]], Tag("mapping")] | Annotated[list[OverrideHead], Tag("plain")],
        Discriminator(_shape),
    ] = Field(description="By rule name, or a list of entries of which later ones win.")


def json_schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12) of RuleSet and Overrides files, for editors and other checkers."""
    models: list[tuple[type[BaseModel], Literal["validation"]]] = [
        (model, "validation") for model in (RuleModel, RuleSetFile, OverridesFile, OverrideHead)]
    _, schema = models_json_schema(models, by_alias=True)
    defs = schema["$defs"]
    rule, head = defs["RuleModel"], defs["OverrideHead"]
    fields = {key: {"description": value["description"], "anyOf": [value, {"type": "null"}]}
              for key, value in rule["properties"].items() if key != "name"}
    defs["Override"] = {"type": "object", "additionalProperties": False, "properties": fields}
    head["properties"].update(fields)
    head["additionalProperties"] = False
    defs["RuleSetFile"]["properties"]["rules"]["items"] = {"$ref": "#/$defs/RuleModel"}
    by_name = next(form for form in defs["OverridesFile"]["properties"]["overrides"]["oneOf"] if "items" not in form)
    by_name["additionalProperties"] = {"$ref": "#/$defs/Override"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nodeguard rules and overrides",
        "oneOf": [{"$ref": "#/$defs/RuleSetFile"}, {"$ref": "#/$defs/OverridesFile"}],
        "$defs": defs,
    }
