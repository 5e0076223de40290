"""Load the mappings of exporters: which metric is which signal, one YAML file a vendor in ``nodeguard/vendors``."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from nodeguard.config.fields import OneOf, OneOrMany, SignalName, StateValue
from nodeguard.config.files import read_text, yaml_files
from nodeguard.config.schema import Strict
from nodeguard.config.translate import problems_of
from nodeguard.config.words import hint, shown
from nodeguard.config.yamltree import Node, load_yaml
from nodeguard.model.device import NODE
from nodeguard.model.errors import ConfigError, Problem, UserError
from nodeguard.model.mapping import ExporterMapping, MetricReading
from nodeguard.model.signals import SIGNALS, Signal

_SHIPPED = Path(__file__).resolve().parent.parent / "vendors"
_SOURCE = "exporter"
_DEVICE = "gpu"
_XID = "gpu_xid"
"""The only event that exporters tell of."""


class _ReadingModel(Strict):
    """One thing that a metric tells."""

    signal: SignalName
    scale: float = 1.0
    values: dict[float, StateValue] | None = None
    bit: Annotated[int, Field(ge=0, le=62)] | None = None
    width: Annotated[int, Field(ge=1, le=16)] = 1
    where: dict[str, OneOrMany[str]] | None = None
    labels: dict[str, str] | None = None
    copy_labels: dict[str, str] | None = Field(None, alias="from")
    last: bool = False
    on: Literal["device", "node"] = "device"
    sum_: bool = Field(False, alias="sum")


class _DeviceModel(Strict):
    """Labels that tell which device a line is about."""

    uuid: list[str] = Field(default_factory=list)
    pci: list[str] = Field(default_factory=list)
    index: list[str] = Field(default_factory=list)


class _MetadataModel(Strict):
    """The mapping's name and whose devices it is about."""

    name: str
    vendor: Annotated[str, OneOf("vendor", SIGNALS["gpu_vendor"].states)]


class _MappingFile(Strict):
    """A mapping file. Each metric is checked by itself."""

    api_version: Literal["nodeguard.io/v1"] = Field(alias="apiVersion")
    kind: Literal["ExporterMapping"]
    metadata: _MetadataModel
    device: _DeviceModel
    prefixes: list[str] = Field(default_factory=lambda: [""])
    blanks: list[Annotated[list[float], Field(min_length=2, max_length=2)]] = Field(default_factory=list)
    moving: list[str] = Field(default_factory=list)
    metrics: dict[str, Any]


def mapping_names() -> tuple[str, ...]:
    """Names of the shipped mappings, such as ``dcgm``: the last word of their files' names."""
    return tuple(_name_of(path) for path in yaml_files(_SHIPPED))


@cache
def shipped_mapping(name: str) -> ExporterMapping:
    """The shipped mapping of this name. UserError when there is none; ConfigError with every mistake in it."""
    for path in yaml_files(_SHIPPED):
        if _name_of(path) == name:
            return load_mapping(read_text(path), str(path))
    raise UserError(f"there is no exporter mapping {shown(name)}{hint(name, mapping_names())}")


def _name_of(path: Path) -> str:
    return path.stem.rpartition("-")[2]


def load_mapping(text: str, file: str) -> ExporterMapping:
    """A mapping from its text; ConfigError with every mistake."""
    document = load_yaml(text, file).single(file)
    problems: list[Problem] = []
    try:
        model = _MappingFile.model_validate(document.plain())
    except ValidationError as error:
        raise ConfigError(list(problems_of(error, _MappingFile, document, ""))) from error
    metrics = {metric: tuple(_readings(metric, entry.node, problems))
               for metric, entry in document.entries()["metrics"].node.entries().items() if isinstance(metric, str)}
    if problems:
        raise ConfigError(problems)
    return ExporterMapping(
        name=model.metadata.name, vendor=model.metadata.vendor, uuid_labels=tuple(model.device.uuid),
        pci_labels=tuple(model.device.pci), index_labels=tuple(model.device.index), prefixes=tuple(model.prefixes),
        blanks=tuple((low, high) for low, high in model.blanks), moving=frozenset(model.moving),
        metrics=MappingProxyType(metrics))


def _readings(metric: str, node: Node, problems: list[Problem]) -> Iterator[MetricReading]:
    for item in node.items() or (node,):
        try:
            model = _ReadingModel.model_validate(item.plain())
        except ValidationError as error:
            problems.extend(problems_of(error, _ReadingModel, item, metric))
            continue
        wrong = _mistake(model, SIGNALS[model.signal])
        if wrong:
            problems.append(Problem(*item.position(("signal",)), metric, wrong))
        else:
            yield _frozen(model)


def _mistake(model: _ReadingModel, signal: Signal) -> str:
    """What is wrong with a reading beyond its single fields; empty when nothing is."""
    kind = NODE if model.on == "node" else _DEVICE
    if kind not in signal.devices:
        return f"{signal.name} does not belong to {kind}"
    if _SOURCE not in signal.sources:
        return f"{signal.name} is not read from exporters: name them in the signal's sources"
    if model.last != (signal.name == _XID):
        return f"'last' is for {_XID}, which needs it: the metric holds the number of the last one"
    unknown = sorted({*(model.labels or ()), *(model.copy_labels or ())} - set(signal.attributes))
    if unknown:
        return f"{signal.name} has no label {shown(unknown[0])}{hint(unknown[0], signal.attributes)}"
    return _wrong_values(model, signal)


def _wrong_values(model: _ReadingModel, signal: Signal) -> str:
    values = tuple((model.values or {}).values())
    if not signal.states:
        return f"{signal.name} has numbers, not words" if any(isinstance(one, str) for one in values) else ""
    if not values:
        return f"{signal.name} is a word: 'values' must say which number is which"
    wrong = next((one for one in values if one not in signal.states), None)
    return "" if wrong is None else f"{signal.name} has no state {shown(wrong)}{hint(wrong, signal.states)}"


def _frozen(model: _ReadingModel) -> MetricReading:
    return MetricReading(
        signal=model.signal, scale=model.scale,
        values=None if model.values is None else MappingProxyType(model.values), shift=model.bit, width=model.width,
        where=tuple((label, tuple(values)) for label, values in (model.where or {}).items()),
        labels=tuple(sorted((model.labels or {}).items())), copied=tuple(sorted((model.copy_labels or {}).items())),
        last=model.last, on_node=model.on == "node", summed=model.sum_)
