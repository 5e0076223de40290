"""``python -m tests.fuzz [--runs N] [--engine atheris|hypothesis|both] [TARGET …]``: fuzz parsers.

Each target runs in a process of its own. Atheris follows which branches an input takes and keeps what it found in a
corpus outside the checkout (``--corpus``); hypothesis puts inputs together from pieces of the format and shrinks what
fails. Where atheris cannot be installed, hypothesis alone runs, and that is said.
"""

import argparse
import importlib.util
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.engines import ENGINES
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Fuzz; 1 when an input was found that a parser does not bear."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs a target and engine; default: %(default)s")
    parser.add_argument("--engine", choices=(*ENGINES, "both"), default="both")
    parser.add_argument("--corpus", type=Path, default=Path(tempfile.gettempdir()) / "nodeguard-fuzz",
                        help="where atheris keeps its inputs; default: %(default)s")
    args = parser.parse_args()
    unknown = [name for name in args.targets if name not in TARGETS]
    if unknown:
        parser.error(f"no target is called {unknown[0]}")
    failed = [job for job in _jobs(args.targets or list(TARGETS), args.engine)
              if not _passes(*job, args.runs, args.corpus)]
    for name, engine in failed:
        _say(f"FAILED: {name} ({engine})")
    return 1 if failed else 0


def _jobs(names: list[str], engine: str) -> list[tuple[str, str]]:
    engines = list(ENGINES) if engine == "both" else [engine]
    if "atheris" in engines and importlib.util.find_spec("atheris") is None:
        _say("atheris is not installed (it has wheels for Linux on x86_64 only): hypothesis alone")
        engines = ["hypothesis"]
    return [(name, one) for name in names for one in engines]


def _passes(name: str, engine: str, runs: int, corpus: Path) -> bool:
    begun = time.monotonic()
    child = multiprocessing.get_context("spawn").Process(target=ENGINES[engine], args=(name, runs, corpus))
    child.start()
    child.join()
    _say(f"{name:<18} {engine:<11} {runs} inputs in {time.monotonic() - begun:.0f} s, exit {child.exitcode}")
    return child.exitcode == 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
