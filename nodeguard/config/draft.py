"""One rule on its way from YAML to the engine: its text with positions, and as much of it as is well-formed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ValidationError

from nodeguard.config.schema import TEST_KEYS, RuleModel
from nodeguard.config.translate import problems_of
from nodeguard.config.yamltree import Node, Position
from nodeguard.model.errors import Problem
from nodeguard.model.signals import SIGNALS, Signal

_FILLERS: dict[str, object] = {
    "name": "unnamed", "signal": "gpu_xid", "severity": "info", "action": "none", "effect": "none",
}
_EVERY_KEY = frozenset(info.alias or name for name, info in RuleModel.model_fields.items())


class Finding(NamedTuple):
    """A mistake that several fields make together, and where in the rule to point."""

    path: Sequence[object]
    message: str
    key: bool = False
    """Point at the key, not at its value."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A rule whose fields were checked one by one. Broken fields hold fillers: ask :meth:`sound` before judging."""

    name: str
    node: Node
    model: RuleModel
    broken: frozenset[object]
    """Top-level keys that are missing or wrong; their mistakes are reported already."""
    problems: tuple[Problem, ...]

    def sound(self, *keys: str) -> bool:
        """Whether all of these fields, given or left out, are as the schema wants them."""
        return self.broken.isdisjoint(keys)

    @property
    def signal(self) -> Signal | None:
        """The rule's signal, if it names one."""
        return SIGNALS[self.model.signal] if self.sound("signal") else None

    @property
    def test_keys(self) -> list[str]:
        """The test keys that are written, well-formed or not."""
        return [key for key in TEST_KEYS if key in self.node.entries()]

    def problem(self, finding: Finding) -> Problem:
        """``finding`` with this rule's name and the line and column of its path."""
        return Problem(*self.node.position(finding.path, key=finding.key), self.name, finding.message)


def draft(node: Node, fallback_name: str) -> Draft:
    """Check each field of ``node`` alone. ``fallback_name`` is used in problems while the rule has no name."""
    plain = node.plain()
    fields = plain if isinstance(plain, dict) else {}
    name = fields.get("name")
    subject = name if isinstance(name, str) and name else fallback_name
    nulls = dict(_nulls(node, subject))
    empty = {key for key, entry in node.entries().items() if nulls.keys() & _places(entry.node)}
    try:
        return Draft(subject, node, RuleModel.model_validate(plain), frozenset(empty), tuple(nulls.values()))
    except ValidationError as error:
        broken = _EVERY_KEY if not fields else empty.union(detail["loc"][0] for detail in error.errors())
        found = [problem for problem in problems_of(error, RuleModel, node, subject)
                 if Position(problem.file, problem.line, problem.column) not in nulls]
        kept = {key: value for key, value in fields.items() if key not in broken}
        model = RuleModel.model_validate(_FILLERS | kept)
        return Draft(subject, node, model, frozenset(broken), (*nulls.values(), *found))


def _nulls(node: Node, subject: str) -> Iterator[tuple[Position, Problem]]:
    """A key without a value would silently mean less than its author thinks (``match:`` matches everything)."""
    for key, entry in node.entries().items():
        if entry.node.value is None:
            message = f"key '{key}' has no value: give one or remove the key"
            yield entry.node.at, Problem(*entry.key, subject, message)
        yield from _nulls(entry.node, subject)
    for item in node.items():
        yield from _nulls(item, subject)


def _places(node: Node) -> set[Position]:
    inner = [entry.node for entry in node.entries().values()] + list(node.items())
    return {node.at}.union(*map(_places, inner))
