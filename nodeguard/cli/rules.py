"""``nodeguard rules check``, ``nodeguard rules test`` and ``nodeguard rules schema``."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from nodeguard.app.ruletests import load_cases, run_case
from nodeguard.config.durations import parse_duration
from nodeguard.config.rules import load_rules
from nodeguard.config.schema import json_schema
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.model.errors import UserError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 (argparse names it nowhere else)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of ``rules``."""
    parser.epilog = "example: nodeguard rules check rules/"
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_check(commands)
    _add_test(commands)
    _add_schema(commands)


def _add_check(commands: "Subparsers") -> None:
    parser = commands.add_parser(
        "check", help="report every mistake in rules and overrides, with line and column",
        epilog="example: nodeguard rules check rules/ --overrides /etc/nodeguard/overrides")
    parser.add_argument("paths", nargs="*", type=Path, metavar="DIR", help="rules; default: the shipped ones")
    parser.add_argument("--overrides", action="append", type=Path, default=[], metavar="DIR",
                        help="overrides to check on top; may be repeated")
    parser.set_defaults(run=check)


def _add_test(commands: "Subparsers") -> None:
    parser = commands.add_parser(
        "test", help="run rule tests: recordings with the faults they must lead to",
        epilog="example: nodeguard rules test rules/tests --rules rules/")
    parser.add_argument("paths", nargs="*", type=Path, metavar="TESTS",
                        help="files or directories of tests; default: those of the shipped rules")
    parser.add_argument("--rules", action="append", type=Path, metavar="DIR",
                        help="rules to test instead of the shipped ones; may be repeated")
    parser.add_argument("--overrides", action="append", type=Path, default=[], metavar="DIR",
                        help="changes of single rules; may be repeated")
    parser.add_argument("--soak", metavar="DURATION", help="let every level and counter rule soak for so long")
    parser.set_defaults(run=test)


def _add_schema(commands: "Subparsers") -> None:
    parser = commands.add_parser(
        "schema", help="print the JSON Schema of rules and overrides, for editors",
        epilog="example: nodeguard rules schema > nodeguard.schema.json")
    parser.set_defaults(run=schema)


def check(args: argparse.Namespace) -> int:
    """Print one line about a valid set; ConfigError with every mistake otherwise."""
    rules = load_rules(args.paths or [shipped_rules_dir()], overrides=args.overrides)
    print(f"{len(rules.rules)} rules are valid, hash {rules.hash}")
    return 0


def test(args: argparse.Namespace) -> int:
    """Print every failure and a last line; exit 1 when a test failed."""
    shipped = shipped_rules_dir()
    rules = load_rules(args.rules or [shipped], overrides=args.overrides)
    cases = load_cases(args.paths or [shipped / "tests"])
    soak = parse_soak(args.soak)
    outcomes = [run_case(case, rules, soak=soak) for case in cases]
    failed = [outcome for outcome in outcomes if outcome.failures]
    for outcome in failed:
        print(*outcome.failures, sep="\n")
    print(f"{len(outcomes) - len(failed)} rule tests passed, {len(failed)} failed")
    return 1 if failed else 0


def parse_soak(text: str | None) -> float:
    """Seconds of ``--soak``; 0 when it is not given."""
    try:
        return 0.0 if text is None else parse_duration(text)
    except ValueError as error:
        raise UserError(f"--soak: {error}") from error


def schema(_args: argparse.Namespace) -> int:
    """Print the JSON Schema."""
    print(json.dumps(json_schema(), indent=2))
    return 0
