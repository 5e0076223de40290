"""``nodeguard replay``: a recording through the engine, with every transition and how the node stands at the end."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodeguard.app.explain import rule_called, rule_lines
from nodeguard.app.explain_replay import Explainer, text_of
from nodeguard.app.replay import Player, judged_otherwise, new_recording, transition_row
from nodeguard.cli.rules import parse_soak
from nodeguard.config.rules import load_rules
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.model.errors import ConfigError, Problem
from nodeguard.model.fault import Transition
from nodeguard.model.rule import RuleSet
from nodeguard.sources.recording.reader import Act, entries_of_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.epilog = "example: nodeguard replay night.jsonl --rules rules/ --explain gpu-hot"
    parser.add_argument("file", type=Path, metavar="FILE", help="a recording: JSON Lines (.jsonl) or a YAML list")
    parser.add_argument("--rules", action="append", type=Path, metavar="DIR",
                        help="rules to use instead of the shipped ones; may be repeated")
    parser.add_argument("--overrides", action="append", type=Path, default=[], metavar="DIR",
                        help="changes of single rules; may be repeated")
    parser.add_argument("--soak", metavar="DURATION", help="let every level and counter rule soak for so long")
    parser.add_argument("--explain", metavar="RULE",
                        help="say sample by sample why this rule fired, or what kept it from firing")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="how to print; default: text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the transitions and the end, or every mistake of the recording (exit 2)."""
    rules = load_rules(args.rules or [shipped_rules_dir()], overrides=args.overrides)
    problems: list[Problem] = []
    player = Player(rules, soak=parse_soak(args.soak))
    recording = new_recording(str(args.file), problems)
    acts = recording.acts(entries_of_file(args.file, problems))
    if args.explain is not None:
        return _explain(args, player, rules, acts, problems)
    transitions = list(player.play(acts))
    if problems:
        raise ConfigError(problems)
    otherwise = judged_otherwise(recording, rules)
    if otherwise is not None:
        print(f"nodeguard: {otherwise}", file=sys.stderr)
    rows = [transition_row(one) for one in transitions]
    end = {"at": player.at, "final": player.final()}
    for line in map(json.dumps, (*rows, end)) if args.output == "json" else _text(transitions, end):
        print(line)
    return 0


def _explain(args: argparse.Namespace, player: Player, rules: RuleSet, acts: Iterator[Act],
             problems: list[Problem]) -> int:
    rule = rule_called(args.explain, rules)
    rows = list(Explainer(player, rule).rows(acts))
    if problems:
        raise ConfigError(problems)
    if args.output == "json":
        for row in rows:
            print(json.dumps(row))
        return 0
    print(*rule_lines(rule.name, rules), sep="\n")
    print(*map(text_of, rows), sep="\n")
    if not rows:
        print(f"nothing in the recording is about {rule.signal}: no source told it")
    return 0


def _text(transitions: list[Transition], end: dict[str, Any]) -> list[str]:
    lines = [f"{one.at:>10.3f}  {one.transition:<7}  {one.fault.severity:<8}  {one.fault.effect:<10}  "
             f"{one.fault.rule}  {one.fault.device}  ({one.detail})" for one in transitions]
    final = end["final"]
    lines.append(f"at {end['at']:g} s: effect {final['effect']}, action {final['action']}, "
                 f"{len(final['faults'])} open faults, taints: {', '.join(final['taints']) or 'none'}")
    lines.extend(f"  {name}: {one['status']} ({one['reason']}) {one['message']}"
                 for name, one in final["conditions"].items())
    return lines
