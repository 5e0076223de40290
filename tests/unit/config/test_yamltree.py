"""YAML with positions: how words are read, what is refused, where things are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.config.yamltree import MAX_CHARACTERS, Position, load_yaml
from nodeguard.model.errors import ConfigError


def value(text: str) -> object:
    return load_yaml(text, "f").single("f").plain()


def problems(text: str) -> list[str]:
    return [str(problem) for problem in load_yaml(text, "f").problems]


@pytest.mark.parametrize(("text", "expected"), [
    ("off", "off"), ("no", "no"), ("YES", "YES"), ("12:30", "12:30"), ("1_000", "1_000"), ("2026-01-01", "2026-01-01"),
    ("true", True), ("False", False), ("[~]", [None]), ("a:", {"a": None}),
    ("10", 10), ("-3", -3), ("+3", 3), ("0", 0), ("0x1f", 31), ("0o17", 15),
    ("0.5", 0.5), (".5", 0.5), ("1e3", 1000.0), ("-.inf", float("-inf")),
    ("'10'", "10"), ('"true"', "true"), ("!!str 10", "10"), ("{1: a, true: b}", {1: "a"}),
    ("9" * 50, "9" * 50), ("0000:3b:00.0", "0000:3b:00.0"),
])
def test_words_are_read_as_yaml_1_2(text: str, expected: object) -> None:
    """Only true, false and plain numbers are more than text."""
    assert load_yaml(text, "f").documents[0].plain() == expected


def test_positions_of_keys_values_and_items() -> None:
    """Lines and columns count from 1; steps that lead nowhere are skipped."""
    tree = load_yaml("a: 1\nrules:\n  - name: x\n    match: {code: [9, 10]}\n", "f").single("f")
    assert tree.position(["rules", 0, "match", "code", 1]) == Position("f", 4, 23)
    assert tree.position(["rules", 0, "match"], key=True) == Position("f", 4, 5)
    assert tree.position(["rules", 0, "union-branch", "name"]) == Position("f", 3, 11)
    assert tree.position(["rules", 5, "match"]) == Position("f", 3, 3)


@pytest.mark.parametrize(("text", "problem"), [
    ("a: 1\na: 2\n", "f:2:1: key 'a' is given twice, first on line 1"),
    ("a: 010\n", "f:1:4: 010 is eight-based to some readers: drop the leading zero or quote it"),
    ("[a, b]: 1\n", "f:1:1: a key must be a single word, not a list or mapping"),
    ("a: !!int '3'\n", "f:1:4: tag tag:yaml.org,2002:int is not supported"),
    ("a: !x {}\n", "f:1:4: tag !x is not supported"),
    ("a: *b\n", "f:1:4: alias *b has no finished anchor before it"),
    ("a: &b 1\n---\na: *b\n", "f:3:4: alias *b has no finished anchor before it"),
    ("a: &b [*b]\n", "f:1:8: alias *b has no finished anchor before it"),
    ("a: 'x\n", "f:2:1: is not valid YAML: while scanning a quoted scalar found unexpected end of stream"),
    ("a: \x01\n", "f:1:4: is not valid YAML: control characters are not allowed"),
    ("a: \ud800\n", "f:1:4: holds half of a surrogate pair, which is no character"),
    ("x" * (MAX_CHARACTERS + 1), "f: is larger than 1048576 characters"),
    ("[" * 60, "f:1:41: is nested more than 40 deep"),
    ("[" * 100_000, "f:1:1001: is not valid YAML: while increasing flow level exceeded maximum nesting depth"),
])
def test_what_is_refused(text: str, problem: str) -> None:
    """Each with its place."""
    assert problems(text) == [problem]


def test_alias_bombs_are_refused() -> None:
    """Nine levels of nine aliases would be a billion values."""
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert "holds more than 200000 values, aliases counted" in problems("\n".join(lines))[0]


def test_an_alias_is_the_value_at_its_place() -> None:
    """Anchors may be used; a problem points at the use."""
    tree = load_yaml("a: &x [1]\nb: *x\n", "f").single("f")
    assert tree.plain() == {"a": [1], "b": [1]}
    assert tree.position(["b"]) == Position("f", 2, 4)


def test_documents_before_a_syntax_error_are_given() -> None:
    """So that their mistakes are told in the same go."""
    loaded = load_yaml("a: 1\n---\nb: [\n", "f")
    assert [node.plain() for node in loaded.documents] == [{"a": 1}]
    assert len(loaded.problems) == 1


def test_single_wants_one_document() -> None:
    """No document and two documents are both told."""
    for text in ("", "a: 1\n---\nb: 1\n"):
        with pytest.raises(ConfigError, match="must hold one YAML document"):
            load_yaml(text, "f").single("f")


@settings(deadline=None)
@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing is raised, and every problem has a place."""
    assert all(problem.line >= 1 and problem.column >= 1 for problem in load_yaml(text, "f").problems)
