"""Files of rules and of overrides, taken apart into single rules and single overrides."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from nodeguard.config.schema import TEST_KEYS, OverridesFile, RuleSetFile
from nodeguard.config.translate import problems_of
from nodeguard.config.yamltree import Entry, Node, Position, Scalar, load_yaml
from nodeguard.model.errors import Problem

Texts = Sequence[tuple[str, str]]
"""Name and content of files."""


@dataclass(frozen=True, slots=True)
class Override:
    """Fields that replace those of one rule, on nodes with these labels."""

    rule: str
    at: Position
    """Where the rule is named."""
    fields: Mapping[Scalar, Entry]
    nodes: Mapping[str, str]

    def applies(self, node_labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is meant."""
        return all(node_labels.get(label) == value for label, value in self.nodes.items())

    def merged(self, base: Node) -> Node:
        """The rule with this override: a new test replaces the old one, null removes a field."""
        entries = dict(base.entries())
        if any(key in TEST_KEYS and entry.node.value is not None for key, entry in self.fields.items()):
            entries = {key: entry for key, entry in entries.items() if key not in TEST_KEYS}
        for key, entry in self.fields.items():
            if entry.node.value is None:
                entries.pop(key, None)
            else:
                entries[key] = entry
        return Node(base.at, entries)


def read_rules(texts: Texts, problems: list[Problem]) -> list[Node]:
    """Every entry under ``rules`` in the files, well-formed or not; what is wrong around them goes to ``problems``."""
    rules: list[Node] = []
    for document in _documents(texts, problems):
        problems.extend(_file_problems(document, RuleSetFile))
        if "rules" in document.entries():
            rules.extend(document.entries()["rules"].node.items())
    return rules


def read_overrides(texts: Texts, problems: list[Problem]) -> list[Override]:
    """Every override in the files, in order; what is wrong around them goes to ``problems``."""
    found: list[Override] = []
    for document in _documents(texts, problems):
        wrong = list(_file_problems(document, OverridesFile))
        problems.extend(wrong)
        entry = document.entries().get("overrides")
        if entry is not None:
            found.extend(_by_name(entry.node))
            found.extend(_in_list(entry.node))
    return found


def _documents(texts: Texts, problems: list[Problem]) -> Iterator[Node]:
    for name, text in texts:
        loaded = load_yaml(text, name)
        problems.extend(loaded.problems)
        if not loaded.documents and not loaded.problems:
            problems.append(Problem(name, 0, 0, "", "is empty"))
        yield from loaded.documents


def _file_problems(document: Node, model: type[BaseModel]) -> Iterator[Problem]:
    try:
        model.model_validate(document.plain())
    except ValidationError as error:
        yield from problems_of(error, model, document, "")


def _by_name(overrides: Node) -> Iterator[Override]:
    for rule, entry in overrides.entries().items():
        if isinstance(rule, str):
            yield Override(rule, entry.key, entry.node.entries(), {})


def _in_list(overrides: Node) -> Iterator[Override]:
    for item in overrides.items():
        entries = item.entries()
        rule = entries["rule"].node if "rule" in entries else None
        if rule is not None and isinstance(rule.value, str):
            fields = {key: entry for key, entry in entries.items() if key not in ("rule", "nodes")}
            yield Override(rule.value, rule.at, fields, _labels(entries.get("nodes")))


def _labels(entry: Entry | None) -> dict[str, str]:
    """Labels as text; values that are none were reported, and must not make an override apply more widely."""
    given = entry.node.entries() if entry is not None else {}
    return {str(label): str(value.node.value) for label, value in given.items()}
