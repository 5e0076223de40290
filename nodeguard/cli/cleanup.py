"""``nodeguard cleanup``: take every mark of nodeguard out of a cluster."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

from nodeguard.app.cleanup import Mark, find
from nodeguard.cli.cluster import add_cluster_flags, api_of
from nodeguard.model.errors import ApiError, UserError

_AT_ONCE = 8
"""Requests under way: thousands of Nodes take a minute, and the API server does not notice."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.epilog = (
        "example: nodeguard cleanup --dry-run. Resumes the jobs that nodeguard suspended; removes its annotations, "
        "taints and conditions from Nodes, its Leases, and its ConfigMaps nodeguard-brake and nodeguard-incidents. "
        "Annotations that people wrote (hold, release, silence, quiesce, clear) and everybody else's marks stay. "
        "Delete the DaemonSet and the Deployment first. Exit code 0: all of it is gone; 1: some of it is not; 2: a "
        "mistake.")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_cluster_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Find, ask, remove; every mark is printed."""
    problems: list[str] = []
    notes: list[str] = []
    found = list(find(api_of(args), args.namespace, failed=problems.append, note=notes.append))
    for text in notes:
        print(f"note: {text}")
    _complain(problems)
    if not found:
        print("nothing to remove was found" if problems else "no mark of nodeguard is in this cluster")
        return int(bool(problems))
    if args.dry_run:
        print(*(f"would clean up {mark}" for mark in found), sep="\n")
        print(f"in all {_counted(found)}")
        return int(bool(problems))
    if not args.yes and not _agreed(found):
        print("nothing was removed")
        return 0
    left = _remove(found)
    print(f"in all {_counted(found)}" + (f"; {left} failed, run it again" if left else ""))
    return int(bool(problems or left))


def _agreed(found: Sequence[Mark]) -> bool:
    if not sys.stdin.isatty():
        raise UserError(f"nothing was removed: give --yes to clean up {_counted(found)}, or --dry-run to see each")
    return input(f"clean up {_counted(found)}? [y/N] ").strip().lower() in ("y", "yes")


def _remove(found: Sequence[Mark]) -> int:
    """Remove each, one kind after the other; how many failed."""
    failed: list[str] = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _, group in groupby(found, key=lambda mark: mark.kind):
            batch = tuple(group)
            for mark, failure in zip(batch, pool.map(_try, batch), strict=True):
                if failure:
                    failed.append(f"{mark.kind} {mark.name}: {failure}")
                else:
                    print(f"cleaned up {mark}")
    _complain(failed)
    return len(failed)


def _try(mark: Mark) -> str:
    try:
        mark.remove()
    except ApiError as error:
        return str(error)
    return ""


def _complain(texts: Iterable[str]) -> None:
    for text in texts:
        print(f"nodeguard: {text}", file=sys.stderr)


def _counted(found: Sequence[Mark]) -> str:
    """Such as ``1 Job, 40 Nodes and 41 Leases``."""
    counts = Counter(mark.kind for mark in found)
    words = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items()]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
