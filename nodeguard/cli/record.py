"""``nodeguard record``: what this node's sources read, as a file that ``nodeguard replay`` judges again."""

import argparse
import os
import sys
import tempfile
import threading
from pathlib import Path

from nodeguard.app.agent import Agent
from nodeguard.app.record import DEFAULT_LIMIT, Recorder
from nodeguard.cli.flags import STACK, add_option_flags, on_signals
from nodeguard.config.durations import parse_positive_duration
from nodeguard.config.options import AGENT_OPTIONS
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.model.clock import SystemClock
from nodeguard.model.errors import UserError
from nodeguard.sinks.log import configure

_MIB = 1 << 20
_MEANINGLESS = ("kubeconfig", "no_kube", "namespace", "state_dir", "listen")
"""Options of the agent that say where it writes: this command writes nothing but the file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.epilog = ("example: nodeguard record --output night.jsonl --for 10m; then nodeguard replay night.jsonl. "
                     "It reads what an agent here would read, judges it to ask for the pods of faulty GPUs, and writes "
                     "nothing to the cluster. Ctrl-C ends it; the file is whole at any moment but for its last line.")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the recording (.jsonl)")
    parser.add_argument("--for", dest="duration", metavar="DURATION", help="end after so long, such as 60s")
    parser.add_argument("--max-size", type=int, default=DEFAULT_LIMIT // _MIB, metavar="MIB",
                        help="end before the file is larger than so many MiB; default: %(default)s")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="the agent's settings file (YAML)")
    add_option_flags(parser, [one for one in AGENT_OPTIONS if one.name not in _MEANINGLESS])
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Record until the time or the size is reached, or a signal comes."""
    duration = _duration(args.duration)
    if args.max_size < 1:
        raise UserError(f"--max-size must be 1 or more, not {args.max_size}")
    flags = {option.name: getattr(args, option.name, None) for option in AGENT_OPTIONS}
    with tempfile.TemporaryDirectory(prefix="nodeguard-record-") as state_dir:
        fixed = {"no_kube": True, "state_dir": state_dir, "listen": "127.0.0.1:0"}
        settings = resolve_agent_settings({**flags, **fixed}, os.environ, args.settings)
        threading.stack_size(STACK)
        clock = SystemClock()
        stop = threading.Event()
        recorder = Recorder(args.output, limit=args.max_size * _MIB, note=lambda text: _end(text, stop))
        agent = Agent(settings, clock, configure(settings.log_level, sys.stderr, clock), None, recorder)
        on_signals(stop.set)
        _run(agent, stop, duration)
    return 0


def _run(agent: Agent, stop: threading.Event, duration: float | None) -> None:
    def work() -> None:
        try:
            agent.run()
        finally:
            stop.set()

    thread = threading.Thread(target=work, name="agent")
    thread.start()
    stop.wait(duration)
    agent.stop()
    thread.join()


def _end(text: str, stop: threading.Event) -> None:
    print(f"nodeguard: {text}", file=sys.stderr)
    stop.set()


def _duration(text: str | None) -> float | None:
    try:
        return None if text is None else parse_positive_duration(text)
    except ValueError as error:
        raise UserError(f"--for {error}") from error
