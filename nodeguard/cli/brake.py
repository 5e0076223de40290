"""``nodeguard brake``: a person stops agents from adding taints, and lets them again."""

import argparse
import os
import re
import time
from collections.abc import Iterable

from nodeguard.cli.cluster import add_cluster_flags, api_of
from nodeguard.config.rules import load_rules
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.config.words import hint, shown
from nodeguard.kube.api import MERGE_PATCH, Api
from nodeguard.kube.brake import Brake, Hold, entries_off, entry, fetch, path, write
from nodeguard.kube.patches import rfc3339
from nodeguard.model.errors import ApiNotFound, UserError

_RULE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of ``brake``."""
    parser.epilog = "example: nodeguard brake on --rule gpu-hot --reason 'cooling works, the limit is wrong'"
    commands = parser.add_subparsers(metavar="on|off|show", required=True)
    on = commands.add_parser(
        "on", help="let no agent add its taint, for some rules or for all; conditions and annotations go on",
        epilog="example: nodeguard brake on --rule gpu-hot --reason 'cooling works, the limit is wrong'")
    on.add_argument("--reason", metavar="TEXT", default="no reason given", help="why, for whoever reads it later")
    on.set_defaults(run=lambda args: _brake_on(api_of(args), args))
    off = commands.add_parser("off", help="let agents add taints again, for some rules or for all",
                              epilog="example: nodeguard brake off")
    off.set_defaults(run=lambda args: _brake_off(api_of(args), args))
    show = commands.add_parser("show", help="print what is braked, since when, by whom and why",
                               epilog="example: nodeguard brake show")
    show.set_defaults(run=lambda args: _brake_show(api_of(args), args))
    for command in (on, off):
        command.add_argument("--rule", action="append", default=[], type=_rule_name, metavar="NAME",
                             help="this rule only; may be repeated; default: all rules")
    for command in (on, off, show):
        add_cluster_flags(command)


def _brake_on(api: Api, args: argparse.Namespace) -> int:
    words = f"{rfc3339(time.time())} {os.environ.get('USER') or 'somebody'} {args.reason}"
    data: dict[str, str] = {}
    for name in args.rule or (None,):
        data |= entry(name, Hold(words=words))
    write(api, args.namespace, data)
    print(f"braked: {', '.join(args.rule) or 'every rule'}; agents add no taint and remove none that stands")
    _note_unknown(args.rule)
    return 0


def _brake_off(api: Api, args: argparse.Namespace) -> int:
    standing = fetch(api, args.namespace)
    missing = [name for name in args.rule if name not in standing.rules]
    if missing:
        raise UserError(f"not braked by name: {', '.join(missing)}{hint(missing[0], list(standing.rules))}")
    data = entries_off(args.rule) if args.rule else None
    try:
        api.patch(path(args.namespace), {"data": data}, MERGE_PATCH)
    except ApiNotFound:
        print("nothing is braked")
        return 0
    print(f"not braked any more: {', '.join(args.rule) or 'every rule'}; agents add the taints that are due")
    if args.rule and standing.everything is not None:
        print("every rule is still braked; end that with: nodeguard brake off")
    return 0


def _brake_show(api: Api, args: argparse.Namespace) -> int:
    print(*_lines(fetch(api, args.namespace)), sep="\n")
    return 0


def _lines(brake: Brake) -> Iterable[str]:
    if brake.everything is not None:
        yield f"every rule  {brake.everything.words}".rstrip()
    for name, hold in sorted(brake.rules.items()):
        which = "" if hold.content_hash == "*" else f" as of {hold.content_hash}"
        yield f"{name}{which}  {hold.words}".rstrip()
    if brake.everything is None and not brake.rules:
        yield "nothing is braked"


def _rule_name(text: str) -> str:
    if _RULE_NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"a rule's name is lower case with dashes, not {shown(text)}")
    return text


def _note_unknown(names: Iterable[str]) -> None:
    shipped = [rule.name for rule in load_rules([shipped_rules_dir()]).rules] if names else []
    for name in names:
        if name not in shipped:
            print(f"note: no shipped rule is called {shown(name)}{hint(name, shipped)}")
