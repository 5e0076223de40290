"""YAML text as a tree of values that remember their line and column. The only module that imports ``yaml``.

Plain words are read as YAML 1.2 reads them: ``off``, ``no`` and ``12:30`` are text, only ``true`` and ``false``
are booleans. What the two versions read differently (``010``) is refused. The tree is built from parser events,
not by the library's composer, because that one recurses in C without a limit on depth.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import yaml

from nodeguard.model.errors import ConfigError, Problem

Scalar = str | int | float | bool | None
Path = Sequence[object]
"""Keys and indexes from a node down to one of its descendants."""

MAX_CHARACTERS = 1 << 20
MAX_DEPTH = 40
MAX_NODES = 200_000
"""Values in one text, each alias counted as often as it is used."""

_STR_TAGS = (None, "!", "tag:yaml.org,2002:str")
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"(true|True|TRUE)|false|False|FALSE")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MAX_DIGITS = 40


class Position(NamedTuple):
    """A place in a file. Lines and columns count from 1."""

    file: str
    line: int
    column: int


class Entry(NamedTuple):
    """What a mapping holds for one key: where the key is written, and its value."""

    key: Position
    node: "Node"


@dataclass(frozen=True, slots=True)
class Node:
    """One value and where it begins."""

    at: Position
    value: "Scalar | tuple[Node, ...] | Mapping[Scalar, Entry]"
    size: int = 1
    """Values in it, itself included."""

    def plain(self) -> object:
        """The value without positions: dictionaries, lists and scalars."""
        if isinstance(self.value, Mapping):
            return {key: entry.node.plain() for key, entry in self.value.items()}
        if isinstance(self.value, tuple):
            return [node.plain() for node in self.value]
        return self.value

    def entries(self) -> "Mapping[Scalar, Entry]":
        """The mapping's entries; nothing for any other value."""
        return self.value if isinstance(self.value, Mapping) else {}

    def items(self) -> "tuple[Node, ...]":
        """The list's items; nothing for any other value."""
        return self.value if isinstance(self.value, tuple) else ()

    def position(self, path: Path = (), *, key: bool = False) -> Position:
        """Where the descendant at ``path`` begins (``key``: where its key does); steps that lead nowhere are skipped.

        Skipping is what makes pydantic's error locations usable, which also name branches of unions.
        """
        node, at = self, self.at
        for step in path:
            entry = node.entries().get(step) if isinstance(step, Scalar) else None
            if entry is not None:
                node, at = entry.node, entry.key if key else entry.node.at
            elif isinstance(step, int) and 0 <= step < len(node.items()):
                node = node.items()[step]
                at = node.at
        return at


@dataclass(slots=True)
class Loaded:
    """The documents of one text and what is wrong with it as YAML; both may be there."""

    documents: list[Node] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def single(self, file: str) -> Node:
        """The only document; ConfigError when the text is faulty or holds another number of documents."""
        if not self.problems and len(self.documents) != 1:
            self.problems.append(Problem(file, 0, 0, "", f"must hold one YAML document, not {len(self.documents)}"))
        if self.problems:
            raise ConfigError(self.problems)
        return self.documents[0]


def to_yaml(value: object) -> str:
    """YAML of dictionaries, lists and scalars, keys in their order."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)


def load_yaml(text: str, file: str, *, max_characters: int = MAX_CHARACTERS) -> Loaded:
    """Read every document of ``text``; ``file`` is the name that problems carry. Raises nothing.

    Empty documents are left out. After a syntax error the documents before it are still given.
    """
    loaded = Loaded()
    refusal = _refusal(text, file, max_characters)
    if refusal is not None:
        loaded.problems.append(refusal)
        return loaded
    try:
        loaded.documents.extend(_Composer(text, file, loaded.problems).documents())
    except _Stop as stop:
        loaded.problems.append(stop.problem)
    except yaml.YAMLError as error:
        loaded.problems.append(_syntax_problem(error, text, file))
    return loaded


def _refusal(text: str, file: str, max_characters: int) -> Problem | None:
    if len(text) > max_characters:
        return Problem(file, 0, 0, "", f"is larger than {max_characters} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return Problem(*_place(text, error.start, file), "", "holds half of a surrogate pair, which is no character")
    return None


def _syntax_problem(error: yaml.YAMLError, text: str, file: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        said = " ".join(filter(None, (getattr(error, "context", None), getattr(error, "problem", None))))
        return Problem(file, mark.line + 1, mark.column + 1, "", f"is not valid YAML: {said}")
    place = _place(text, int(getattr(error, "position", 0)), file)
    return Problem(*place, "", f"is not valid YAML: {getattr(error, 'reason', error)}")


def _place(text: str, index: int, file: str) -> Position:
    before = text[:index]
    return Position(file, before.count("\n") + 1, index - before.rfind("\n"))


class _Stop(Exception):  # noqa: N818 (it ends the reading of a text, it is no error of ours)
    def __init__(self, at: Position, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(*at, "", message)


class _Composer:
    """Builds the documents of one text from the parser's events."""

    def __init__(self, text: str, file: str, problems: list[Problem]) -> None:
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.CSafeLoader)
        self._file = file
        self._problems = problems
        self._anchors: dict[str, Node | None] = {}
        self._nodes = 0

    def documents(self) -> Iterator[Node]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                node = self._node(next(self._events), 1)
                if node.value is not None:
                    yield node

    def _node(self, event: yaml.Event, depth: int) -> Node:
        at = self._at(event)
        if depth > MAX_DEPTH:
            raise _Stop(at, f"is nested more than {MAX_DEPTH} deep")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, at)
        self._count(1, at)
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchors[anchor] = None
        node = self._fresh(event, at, depth)
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _fresh(self, event: yaml.Event, at: Position, depth: int) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            return Node(at, self._scalar(event, at))
        if getattr(event, "tag", None) is not None:
            self._problem(at, f"tag {getattr(event, 'tag', '')} is not supported")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(at, depth)
        return self._mapping(at, depth)

    def _alias(self, event: yaml.AliasEvent, at: Position) -> Node:
        node = self._anchors.get(str(event.anchor))
        if node is None:
            raise _Stop(at, f"alias *{event.anchor} has no finished anchor before it")
        self._count(node.size, at)
        # the place of use is what a person has to look at
        return Node(at, node.value, node.size)

    def _sequence(self, at: Position, depth: int) -> Node:
        nodes: list[Node] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            nodes.append(self._node(event, depth + 1))
        return Node(at, tuple(nodes), 1 + sum(node.size for node in nodes))

    def _mapping(self, at: Position, depth: int) -> Node:
        entries: dict[Scalar, Entry] = {}
        size = 1
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            node = self._node(next(self._events), depth + 1)
            size += key.size + node.size
            self._enter(entries, key, node)
        return Node(at, entries, size)

    def _enter(self, entries: dict[Scalar, Entry], key: Node, node: Node) -> None:
        if not isinstance(key.value, Scalar):
            self._problem(key.at, "a key must be a single word, not a list or mapping")
        elif key.value in entries:
            first = entries[key.value].key
            self._problem(key.at, f"key '{key.value}' is given twice, first on line {first.line}")
        else:
            entries[key.value] = Entry(key.at, node)

    def _scalar(self, event: yaml.ScalarEvent, at: Position) -> Scalar:
        if event.tag not in _STR_TAGS:
            self._problem(at, f"tag {event.tag} is not supported")
        if event.tag is not None or not event.implicit[0]:
            return event.value
        if _LEADING_ZERO.fullmatch(event.value):
            self._problem(at, f"{event.value[:40]} is eight-based to some readers: drop the leading zero or quote it")
            return 0
        return _resolve(event.value)

    def _at(self, event: yaml.Event) -> Position:
        mark = event.start_mark
        return Position(self._file, mark.line + 1, mark.column + 1) if mark is not None else Position(self._file, 0, 0)

    def _count(self, nodes: int, at: Position) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise _Stop(at, f"holds more than {MAX_NODES} values, aliases counted")

    def _problem(self, at: Position, message: str) -> None:
        self._problems.append(Problem(*at, "", message))


def _resolve(text: str) -> Scalar:
    if _NULL.fullmatch(text):
        return None
    if (boolean := _BOOL.fullmatch(text)) is not None:
        return boolean.group(1) is not None
    if len(text) > _MAX_DIGITS:
        return text
    if _INT.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "")) if _SPECIAL_FLOAT.fullmatch(text) else text
