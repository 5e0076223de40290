"""``nodeguard rules check`` and ``rules schema``."""

import argparse
import json
from pathlib import Path

import pytest

from nodeguard.cli.rules import add_arguments
from nodeguard.model.errors import UserError

RULES = Path(__file__).parents[2] / "fixtures" / "rules"


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(words)
    return int(args.run(args))


def test_check_says_how_many_rules_are_valid(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for a valid set."""
    assert run("check", str(RULES / "ten-mistakes.good.yaml")) == 0
    assert capsys.readouterr().out.startswith("4 rules are valid, hash ")


def test_check_raises_every_mistake() -> None:
    """The caller prints one line a mistake."""
    with pytest.raises(UserError) as caught:
        run("check", str(RULES / "ten-mistakes.bad.yaml"), "--overrides", str(RULES / "absent"))
    assert len(str(caught.value).splitlines()) == 11


def test_schema_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Something an editor can load."""
    assert run("schema") == 0
    assert "$defs" in json.loads(capsys.readouterr().out)
