"""Rule tests: a recording inline, and the faults, conditions and effect that must stand at given times."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodeguard.app.replay import Player, fault_row, open_recording
from nodeguard.config.files import read_texts
from nodeguard.config.yamltree import Node, load_yaml
from nodeguard.model.errors import ConfigError, Problem
from nodeguard.model.rule import RuleSet
from nodeguard.sources.recording.checks import suggestion
from nodeguard.sources.recording.reader import Act, Entry

_TEST_KEYS = ("name", "rule", "recording", "expect")
_EXPECT_KEYS = ("at", "faults", "effect", "action", "conditions", "taint")
_FAULT_KEYS = ("rule", "device", "severity", "action", "effect", "would", "scope", "condition", "count", "message")


@dataclass(frozen=True, slots=True)
class Case:
    """One rule test."""

    file: str
    line: int
    name: str
    rule: str | None
    recording: tuple[Entry, ...]
    expect: tuple[tuple[int, Mapping[str, Any]], ...]
    """Line and content of each expectation, in order of time."""


@dataclass(slots=True)
class Outcome:
    """What became of a case."""

    case: Case
    failures: list[Problem] = field(default_factory=list)
    fired: set[str] = field(default_factory=set)
    """Rules that opened a fault."""


def load_cases(paths: list[Path]) -> list[Case]:
    """Every case in the YAML files at ``paths`` (files or directories); ConfigError with every mistake."""
    texts, problems = read_texts(paths, may_be_empty=False)
    cases: list[Case] = []
    for name, text in texts:
        loaded = load_yaml(text, name)
        problems.extend(loaded.problems)
        for document in loaded.documents:
            cases.extend(_cases(name, document, problems))
    if problems:
        raise ConfigError(problems)
    return cases


def _cases(file: str, document: Node, problems: list[Problem]) -> Iterator[Case]:
    tests = document.entries().get("tests")
    if tests is None or set(document.entries()) != {"tests"}:
        at = document.at
        problems.append(Problem(file, at.line, at.column, "", "a file of rule tests holds one list, `tests`"))
        return
    for node in tests.node.items():
        entries = node.entries()
        _unknown(file, node, _TEST_KEYS, problems)
        if not {"name", "recording", "expect"} <= entries.keys():
            problems.append(Problem(file, node.at.line, node.at.column, "", "a test needs name, recording and expect"))
            continue
        expect = sorted(_expectations(file, entries["expect"].node, problems), key=_time_of)
        rule, recorded = entries.get("rule"), entries["recording"].node.items()
        yield Case(file, node.at.line, str(entries["name"].node.plain()),
                   None if rule is None else str(rule.node.plain()),
                   tuple(Entry(item.at.line, item.at.column, item.plain()) for item in recorded),
                   tuple(expect))


def _expectations(file: str, node: Node, problems: list[Problem]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for one in node.items():
        _unknown(file, one, _EXPECT_KEYS, problems)
        content: Any = one.plain()
        wrong = _wrong(content)
        if wrong:
            problems.append(Problem(file, one.at.line, one.at.column, "", wrong))
        else:
            yield one.at.line, content


def _wrong(expectation: Any) -> str:
    """What is wrong with the form of an expectation; empty when nothing is."""
    at = expectation.get("at") if isinstance(expectation, dict) else None
    if isinstance(at, bool) or not isinstance(at, int | float):
        return "an expectation needs 'at', in seconds"
    faults = expectation.get("faults")
    if faults is not None and not (isinstance(faults, list) and all(isinstance(fault, dict) for fault in faults)):
        return "'faults' must be a list of mappings"
    if not isinstance(expectation.get("conditions", {}), dict):
        return "'conditions' must be a mapping"
    return ""


def _unknown(file: str, node: Node, valid: tuple[str, ...], problems: list[Problem]) -> None:
    for key, entry in node.entries().items():
        if key not in valid:
            problems.append(Problem(file, entry.key.line, entry.key.column, "",
                                    f"unknown key {key!r}{suggestion(str(key), valid)}"))


def _time_of(expectation: tuple[int, Mapping[str, Any]]) -> float:
    return float(expectation[1]["at"])


def run_case(case: Case, rules: RuleSet, *, soak: float = 0.0) -> Outcome:
    """Play the recording and compare at every expected time."""
    outcome = Outcome(case)
    player = Player(rules, soak=soak)
    waiting = list(case.expect)
    for act in open_recording(case.recording, case.file, outcome.failures):
        while waiting and _time_of(waiting[0]) < act.at:
            _compare(player, outcome, *waiting.pop(0))
        _play(player, outcome, act)
    for expectation in waiting:
        _compare(player, outcome, *expectation)
    return outcome


def _play(player: Player, outcome: Outcome, act: Act) -> None:
    for transition in player.play([act]):
        if transition.transition == "opened":
            outcome.fired.add(transition.fault.rule)


def _compare(player: Player, outcome: Outcome, line: int, wanted: Mapping[str, Any]) -> None:
    at = _time_of((line, wanted))
    if at > player.at:
        _play(player, outcome, Act(at, None))
    final = player.final()

    def fail(message: str) -> None:
        case = outcome.case
        outcome.failures.append(Problem(case.file, line, 1, case.name, f"at {at:g} s: {message}"))

    for key in ("effect", "action"):
        if key in wanted and wanted[key] != final[key]:
            fail(f"{key} is {final[key]}, not {wanted[key]}")
    if "taint" in wanted:
        taint = final["taints"][0].partition("=")[2].partition(":")[0] if final["taints"] else None
        if taint != wanted["taint"]:
            fail(f"the taint is {taint}, not {wanted['taint']}")
    for name, status in (wanted.get("conditions") or {}).items():
        found = final["conditions"].get(name, {}).get("status")
        if found != (None if status is None else str(status)):
            fail(f"condition {name} is {found}, not {status}")
    if "faults" in wanted:
        _compare_faults([fault_row(fault) for fault in player.engine.open_faults()], wanted["faults"] or [], fail)


def _compare_faults(found: list[dict[str, Any]], wanted: list[Mapping[str, Any]], fail: Any) -> None:
    left = list(found)
    for one in wanted:
        bad = [key for key in one if key not in _FAULT_KEYS]
        if bad:
            fail(f"unknown key {bad[0]!r} of a fault{suggestion(bad[0], _FAULT_KEYS)}")
            continue
        match = next((row for row in left if all(row[key] == value for key, value in one.items())), None)
        if match is None:
            fail(f"no open fault is {dict(one)}; open are {[_brief(row) for row in left] or 'none'}")
        else:
            left.remove(match)
    if left:
        fail(f"open faults that are not expected: {[_brief(row) for row in left]}")


def _brief(row: Mapping[str, Any]) -> str:
    return f"{row['rule']} on {row['device']} ({row['effect']}, {row['action']})"
