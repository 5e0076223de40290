"""``python -m bench [NAME …]``: run the measurements and print a table of figures, budgets and ratios."""

import argparse
import sys
from collections.abc import Callable, Mapping

from bench import exporter, hang, latency, nvml, overhead, remediation, replay, scale
from bench.table import Row, show

BENCHES: Mapping[str, Callable[[], list[Row]]] = {
    "replay": replay.run,
    "overhead": overhead.run,
    "nvml": nvml.run,
    "exporter": exporter.run,
    "latency": latency.run,
    "hang": hang.run,
    "remediation": remediation.run,
    "scale": scale.run,
}


def main() -> int:
    """Run what was asked for, or everything."""
    parser = argparse.ArgumentParser(prog="python -m bench", epilog="example: python -m bench latency")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one or more of {', '.join(BENCHES)}; default: all")
    names = parser.parse_args().names or list(BENCHES)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"bench: unknown name {unknown[0]!r}: use {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    for name in names:
        print(f"bench: {name} …", file=sys.stderr)
        rows += BENCHES[name]()
    print(show(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
