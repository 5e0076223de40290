"""One kind of mistake a file: ``<why>.bad.yaml`` names its problems in ``# expect`` lines, ``.good.yaml`` has none."""

from pathlib import Path

import pytest

from nodeguard.config.rules import load_rule_texts
from nodeguard.model.errors import ConfigError

FIXTURES = Path(__file__).parents[2] / "fixtures" / "rules"
BAD = sorted(FIXTURES.glob("*.bad.yaml"))


def problems(text: str) -> list[str]:
    try:
        load_rule_texts([("unit", text)])
    except ConfigError as error:
        return [line.removeprefix("unit:").strip() for line in str(error).splitlines()]
    return []


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_each_mistake_is_reported_at_its_place(path: Path) -> None:
    """A bad file reports exactly the problems it names, with line, column, rule and suggestion."""
    text = path.read_text()
    expected = [line.removeprefix("# expect ") for line in text.splitlines() if line.startswith("# expect ")]
    assert problems(text) == expected
    assert expected


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_the_corrected_file_loads(path: Path) -> None:
    """The good twin of each bad file has no problem."""
    twin = path.with_name(path.name.replace(".bad.", ".good."))
    assert problems(twin.read_text()) == []


def test_ten_mistakes_in_one_file_are_ten_problems() -> None:
    """Ten different mistakes over four rules are all told at once, each with line and column."""
    found = problems((FIXTURES / "ten-mistakes.bad.yaml").read_text())
    assert len(found) == 10
    assert len({tuple(line.split(":")[:2]) for line in found}) == 10
