"""The words of a remediation policy and their shapes, as pydantic models; the published JSON Schema comes from them.

A field's name here is that of its field in :mod:`nodeguard.model.policy`, which also holds every default.
"""

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema

from nodeguard.config.durations import MAX_DURATION, PATTERN, parse_duration
from nodeguard.config.fields import DurationText, OneOf
from nodeguard.config.schema import AtLeastOne, MetadataModel, Strict
from nodeguard.config.words import shown
from nodeguard.model.policy import Budget, Drain, Exclude, Gangs, NoSpare, Policy, Release, RuleBrake, Storm

_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)%", re.ASCII)
_LABEL_NAME = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
"""A prefix that is a DNS name, and a name of at most 63 characters (apimachinery, IsQualifiedName)."""
_LABEL = re.compile(rf"{_LABEL_NAME}(?:=(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?)?)?")
_RESOURCE = re.compile(r"[a-z0-9*?\[\]!.-]{1,253}/[A-Za-z0-9*?\[\]!._-]{1,63}")
_NAME = re.compile(r"[a-z0-9.-]{1,253}")
_PATTERN = re.compile(r"[a-z0-9*?\[\]!.-]{1,253}")


def _percent(value: object) -> float:
    number = value
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value)) is not None:
        number = float(match[1])
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 100:
        raise ValueError(f"must be a share from 0% to 100%, such as 5%, not {shown(value)}")
    return float(number)


def _pause(value: object) -> float:
    seconds = parse_duration(value)
    if seconds > MAX_DURATION:
        raise ValueError("must be at most 30d")
    return seconds


def _resource(value: str) -> str:
    if _RESOURCE.fullmatch(value) is None:
        raise ValueError(f"must be an extended resource's name or a pattern of it, such as nvidia.com/mig-*, "
                         f"not {shown(value)}")
    return value


def _label_name(value: str) -> str:
    if re.fullmatch(_LABEL_NAME, value) is None:
        raise ValueError(f"must be a label's name, such as example.com/pool, not {shown(value)}")
    return value


def _node_label(value: str) -> str:
    if _LABEL.fullmatch(value) is None:
        raise ValueError(f"must be a label, such as example.com/pool or example.com/pool=lab, not {shown(value)}")
    return value


def _name(value: str) -> str:
    if _NAME.fullmatch(value) is None:
        raise ValueError(f"must be a name, which holds no * and no blanks, not {shown(value)}")
    return value


def _pattern(value: str) -> str:
    if _PATTERN.fullmatch(value) is None:
        raise ValueError(f"must be a name or a pattern of it, such as kube-*, not {shown(value)}")
    return value


Percent = Annotated[float, PlainValidator(_percent), WithJsonSchema({"anyOf": [
    {"type": "string", "pattern": rf"^{_PERCENT.pattern}$"}, {"type": "number", "minimum": 0, "maximum": 100}]})]
Pause = Annotated[float, PlainValidator(_pause), WithJsonSchema({"type": "string", "pattern": PATTERN})]
"""A length of time that may be none."""
Resource = Annotated[str, AfterValidator(_resource)]
NodeLabel = Annotated[str, AfterValidator(_node_label)]
Pattern = Annotated[str, AfterValidator(_pattern)]
Name = Annotated[str, AfterValidator(_name)]


class Section(Strict):
    """One part of a policy. What is left out has its default."""

    model_config = ConfigDict(alias_generator=to_camel)


def _field(default: object, description: str | None = None, alias: str | None = None) -> Any:
    # by factory, so that the schema shows no default in the form that the loop uses instead of the file's
    return Field(default_factory=lambda: default, description=description, alias=alias)


class AcceleratorsSection(Section):
    """What makes a pod one that the loop may move."""

    resources: list[Resource] = _field(
        list(Policy().resources), "Names of extended resources, or patterns of them: * stands for anything.")
    device_classes: list[Name] = _field(
        list(Policy().device_classes), "DRA device classes whose claims do the same.")

    @model_validator(mode="after")
    def _something(self) -> "AcceleratorsSection":
        if not self.resources and not self.device_classes:
            raise ValueError("needs a resource or a device class: without any, no pod would ever be moved")
        return self


class BudgetSection(Section):
    """How many nodes may be out of service for repair."""

    max_unavailable_percent: Percent = _field(
        Budget().max_unavailable_percent, "Share of the accelerator nodes, rounded down but never below one node. "
        "Default: 5%.", "maxUnavailable")
    max_nodes: AtLeastOne = _field(Budget().max_nodes, "Nodes that may be begun within the window. Default: 5.")
    window: DurationText = _field(Budget().window, "Default: 10m.")
    pool_label: Annotated[str, AfterValidator(_label_name)] | None = _field(
        None, "Node label whose values are pools, each with a share of its own. Default: all nodes are one pool.")


class StormSection(Section):
    """So many nodes newly at fault within a moment are one cause: nothing is begun until it is over."""

    at_least: AtLeastOne = _field(Storm().at_least, "Nodes; default: 10.", "nodes")
    percent: Percent = _field(
        Storm().percent, "Share of the accelerator nodes; the larger of the two counts. Default: 10%.")
    within: DurationText = _field(Storm().within, "Default: 1m.")
    cooldown: Pause = _field(
        Storm().cooldown, "Quiet time after which the loop acts again, on what is at fault then. Default: 10m.")


class RuleBrakeSection(Section):
    """One rule that taints more nodes than this is braked: no agent adds a taint for it any more."""

    at_least: AtLeastOne = _field(RuleBrake().at_least, "Nodes; default: 5.", "nodes")
    percent: Percent = _field(
        RuleBrake().percent, "Share of the accelerator nodes; the larger of the two counts. Default: 5%.")
    within: DurationText = _field(RuleBrake().within, "Default: 10m.")


class DrainSection(Section):
    """How pods are made to leave."""

    deadline: DurationText = _field(
        Drain().deadline, "Time after which pods that are still there are reported as stuck. Default: 15m.")
    pdb_deadline: DurationText = _field(
        Drain().pdb_deadline, "Time for which a disruption budget is asked again before it is reported. Default: 10m.")


class GangsSection(Section):
    """How jobs of several pods are restarted."""

    no_spare: Annotated[str, OneOf("choice", get_args(NoSpare))] = _field(
        Gangs().no_spare, "What to do with a gang that has nowhere to go. Default: hold.")
    apart: Pause = _field(Gangs().apart, "Time between two restarts of one owner. Default: 5m.")
    per_day: Annotated[int, Field(ge=0)] = _field(
        Gangs().per_day, "Restarts of one owner a day; after them a person is needed. Default: 6.")
    deadline: DurationText = _field(
        Gangs().deadline, "Time until an owner whose pods do not go is reported as stuck. Default: 10m.")
    recreate_failed_jobs: bool = _field(
        Gangs().recreate_failed_jobs, "Delete and create anew a Job that waits in its back-off. Default: false.")
    restart_kueue: bool = _field(
        Gangs().restart_kueue, "Restart what Kueue manages, through its Workload. Default: false: evict its pods.")


class ReleaseSection(Section):
    """When a node is given back."""

    healthy_for: Pause = _field(
        Release().healthy_for, "Time for which the agent must have nothing to complain of. Default: 1m.")


class ExcludeSection(Section):
    """What the loop never touches. A list that is given replaces the default one."""

    node_labels: list[NodeLabel] = _field([], "Labels of nodes that are only watched: name or name=value. "
                                              "Default: nodeguard.io/exclude.")
    namespaces: list[Pattern] = _field(list(Exclude().namespaces), "Names or patterns. Default: kube-system.")
    priority_classes: list[Name] = _field(
        list(Exclude().priority_classes), "Default: system-node-critical, system-cluster-critical.")


class PolicyFile(Section):
    """A file with one remediation policy."""

    api_version: Literal["nodeguard.io/v1"] = Field(description="Version of this format.")
    kind: Literal["RemediationPolicy"] = Field(description="RemediationPolicy.")
    metadata: MetadataModel = _field(MetadataModel(), "Name of the policy, for people.")
    accelerators: AcceleratorsSection = _field(AcceleratorsSection())
    budget: BudgetSection = _field(BudgetSection())
    storm: StormSection = _field(StormSection())
    rule_brake: RuleBrakeSection = _field(RuleBrakeSection())
    drain: DrainSection = _field(DrainSection())
    gangs: GangsSection = _field(GangsSection())
    release: ReleaseSection = _field(ReleaseSection())
    exclude: ExcludeSection = _field(ExcludeSection())
    dry_run: bool = _field(Policy().dry_run, "Decide and tell, and write nothing. Default: false.")


def policy_json_schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12) of policy files, for editors and other checkers."""
    _, schema = models_json_schema([(PolicyFile, "validation")], by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nodeguard remediation policy",
        "$ref": "#/$defs/PolicyFile",
        "$defs": schema["$defs"],
    }
