"""Whatever a person writes, loading ends in a set of rules or in a ConfigError."""

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.config.rules import load_rule_texts
from nodeguard.config.schema import RuleModel
from nodeguard.model.errors import ConfigError, Problem

GOOD = (Path(__file__).parents[2] / "fixtures" / "rules" / "ten-mistakes.good.yaml").read_text()
HEAD = "apiVersion: nodeguard.io/v1\nkind: RuleSet\nrules:\n"
WORDS = (
    "gpu_xid", "gpu_temperature_celsius", "rdma_port_state", "pcie_replay_total", "nvlink_state", "ACTIVE", "10s",
    "{device}", "{", "{a.b}", "evict", "event", "none", "info", "GpuHot", "gpu", "all", "http://[", "a-b", "regex",
    "not", "signal", "plus", "samples", "at_least", "within", "over", "on", "after", "while", "kind", "(a", "[[a]",
)
KEYS = tuple(info.alias or name for name, info in RuleModel.model_fields.items())
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(WORDS), st.text(max_size=8))
VALUES = st.recursive(SCALARS, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS + KEYS), inner, max_size=3)), max_leaves=6)
RULES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=14)
PIECES = st.sampled_from([
    "- ", "? ", ": ", "{", "}", "[", "]", "&a ", "*a", "!!int ", "|\n", ">\n", "---\n", "...\n", "\n", "  ", "<<: ",
    "'", '"', "#", "%YAML 1.1\n", "0x", "012", "1e999", ".nan", "~", "\t", "\\ud800", "name", "rules", "\ufeff", "\0",
])


def load(text: str, overrides: str | None = None) -> None:
    said: tuple[Problem, ...] = ()
    try:
        load_rule_texts([("any", text)], overrides=[] if overrides is None else [("over", overrides)])
    except ConfigError as error:
        said = error.problems
    assert all("\n" not in str(problem) for problem in said)


@settings(deadline=None)
@given(st.text())
def test_any_text(text: str) -> None:
    """Plain text of any kind."""
    load(text)


@settings(deadline=None)
@given(st.lists(PIECES | st.text(max_size=3), max_size=30).map("".join))
def test_any_yaml_like_text(text: str) -> None:
    """Text made of YAML's own signs."""
    load(text)
    load(HEAD + text)


@settings(max_examples=200, deadline=None)
@given(st.lists(RULES, max_size=3), st.dictionaries(st.sampled_from(["a-b", "x"]), RULES))
def test_any_values_in_a_rule(rules: list[object], overrides: dict[str, object]) -> None:
    """Rules with any value under any of their keys, and overrides of them."""
    head = {"apiVersion": "nodeguard.io/v1"}
    load(json.dumps(head | {"kind": "RuleSet", "rules": rules}),
         json.dumps(head | {"kind": "Overrides", "overrides": overrides}))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(GOOD)), st.integers(0, 12), PIECES | st.text(max_size=4))
def test_a_good_file_with_a_hole(at: int, cut: int, instead: str) -> None:
    """A good file after a slip of the keyboard."""
    load(GOOD[:at] + instead + GOOD[at + cut:])
