"""``nodeguard explain``: what a rule, a signal or an Xid means, from the same data that the agent judges by."""

import argparse
from pathlib import Path

from nodeguard.app.explain import rule_lines, signal_lines, xid_lines
from nodeguard.app.explain_pages import pages
from nodeguard.config.rules import load_rules
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.model.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.epilog = ("example: nodeguard explain xid 79. nodeguard explain pages DIR writes all of it into rules.md, "
                     "signals.md and xids.md.")
    parser.add_argument("kind", choices=("rule", "signal", "xid", "pages"), help="what to explain")
    parser.add_argument("name", help="its name, an Xid's number, or the directory for the pages")
    parser.add_argument("--rules", action="append", type=Path, metavar="DIR",
                        help="rules to use instead of the shipped ones; may be repeated")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the explanation; UserError for an unknown name."""
    rules = load_rules(args.rules or [shipped_rules_dir()])
    if args.kind == "pages":
        _write(Path(args.name), pages(rules))
        return 0
    explain = {"rule": rule_lines, "signal": signal_lines, "xid": xid_lines}[args.kind]
    print(*explain(args.name, rules), sep="\n")
    return 0


def _write(folder: Path, texts: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the pages to {folder}: {error.strerror}") from error
