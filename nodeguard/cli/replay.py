"""``nodeguard replay``: a recording through the engine, with every transition and how the node stands at the end."""

import argparse
import json
from pathlib import Path
from typing import Any

from nodeguard.app.replay import Player, open_recording, transition_row
from nodeguard.cli.rules import parse_soak
from nodeguard.config.rules import load_rules
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.model.errors import ConfigError, Problem
from nodeguard.model.fault import Transition
from nodeguard.sources.recording.reader import entries_of_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.epilog = "example: nodeguard replay night.jsonl --rules rules/ --output json"
    parser.add_argument("file", type=Path, metavar="FILE", help="a recording: JSON Lines (.jsonl) or a YAML list")
    parser.add_argument("--rules", action="append", type=Path, metavar="DIR",
                        help="rules to use instead of the shipped ones; may be repeated")
    parser.add_argument("--overrides", action="append", type=Path, default=[], metavar="DIR",
                        help="changes of single rules; may be repeated")
    parser.add_argument("--soak", metavar="DURATION", help="let every level and counter rule soak for so long")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="how to print; default: text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the transitions and the end, or every mistake of the recording (exit 2)."""
    rules = load_rules(args.rules or [shipped_rules_dir()], overrides=args.overrides)
    problems: list[Problem] = []
    player = Player(rules, soak=parse_soak(args.soak))
    acts = open_recording(entries_of_file(args.file, problems), str(args.file), problems)
    transitions = list(player.play(acts))
    if problems:
        raise ConfigError(problems)
    rows = [transition_row(one) for one in transitions]
    end = {"at": player.at, "final": player.final()}
    for line in map(json.dumps, (*rows, end)) if args.output == "json" else _text(transitions, end):
        print(line)
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
