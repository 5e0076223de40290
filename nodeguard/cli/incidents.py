"""``nodeguard incidents``: what the loop did to which node, when, and why."""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from nodeguard.cli.cluster import add_cluster_flags, api_of
from nodeguard.config.yamltree import to_yaml
from nodeguard.kube.api import Api
from nodeguard.kube.patches import rfc3339
from nodeguard.model.errors import ApiNotFound
from nodeguard.remediation.incidents_entry import Incident, document
from nodeguard.remediation.incidents_ring import incidents_in, path

_HEAD = ("DETECTED", "INCIDENT", "NODE", "RULES", "ACTION", "STATE", "MOVED", "BOUND", "RUNNING", "REPAIRED",
         "RELEASED", "OWNERS")
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.epilog = ("example: nodeguard incidents --node gpu-7 -o yaml. Times after DETECTED count from it; MOVED is "
                     "when the first pod was evicted or its gang suspended. What is no table has everything that the "
                     "decision rested on.")
    parser.add_argument("--node", metavar="NAME", help="only of this node, also if the Node object is gone")
    parser.add_argument("--open", action="store_true", help="only what has not ended yet")
    parser.add_argument("-o", "--output", choices=tuple(_PRINTERS), default="table", help="default: table")
    add_cluster_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the incidents, oldest first. ApiError: they cannot be read."""
    found = [one for one in _read(api_of(args), args.namespace)
             if args.node in (None, one.node) and not (args.open and one.outcome)]
    for line in _PRINTERS[args.output](found):
        print(line)
    return 0


def _read(api: Api, namespace: str) -> Sequence[Incident]:
    try:
        return tuple(incidents_in(api.get(path(namespace))).values())
    except ApiNotFound:
        return ()


def _table(incidents: Sequence[Incident]) -> Iterator[str]:
    if not incidents:
        yield "no incidents"
        return
    rows = [_HEAD, *map(_row, incidents)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    for one in incidents:
        if not one.outcome and (one.reason or one.waited):
            yield f"{one.node}: {one.reason or 'waits: ' + one.waited[-1][1]}"


def _row(one: Incident) -> tuple[str, ...]:
    moved = min((one.since_detected(phase) for phase in ("evicted", "suspended") if phase in one.stamps), default=None)
    late = " (back-off)" if "job-backoff" in one.stamps else ""
    reached = {phase: one.since_detected(phase) for phase in ("bound", "running", "repaired", "released")
               if phase in one.stamps}
    return (rfc3339(one.stamps.get("detected", one.begun), "milliseconds"), one.id, one.node, ",".join(one.rules),
            one.action, one.outcome or one.state, _since(moved), _since(reached.get("bound")) + late,
            _since(reached.get("running")), _since(reached.get("repaired")), _since(reached.get("released")),
            ", ".join(one.owners.values()))


def _since(seconds: float | None) -> str:
    """A time span for people: three digits are enough."""
    if seconds is None:
        return "-"
    if seconds < _MINUTE:
        return f"+{seconds:.3f}s"
    if seconds < _HOUR:
        return f"+{seconds / _MINUTE:.1f}m"
    return f"+{seconds / _HOUR:.1f}h" if seconds < _DAY else f"+{seconds / _DAY:.1f}d"


def _json(incidents: Sequence[Incident]) -> Iterator[str]:
    yield json.dumps([document(one) for one in incidents], indent=2, ensure_ascii=False)


def _yaml(incidents: Sequence[Incident]) -> Iterator[str]:
    yield to_yaml([document(one) for one in incidents]).rstrip("\n")


_PRINTERS: Mapping[str, Callable[[Sequence[Incident]], Iterator[str]]] = {"table": _table, "json": _json, "yaml": _yaml}
