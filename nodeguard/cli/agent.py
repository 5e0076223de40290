"""``nodeguard agent``: watches this node and says on its Node what is broken."""

import argparse
import os
import sys
import threading
from pathlib import Path

from nodeguard.app.agent import Agent
from nodeguard.app.taps import NO_TAPS, Taps
from nodeguard.cli.flags import STACK, add_option_flags, on_signals
from nodeguard.config.options import AGENT_OPTIONS
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.kube.client import connect
from nodeguard.model.clock import SystemClock
from nodeguard.model.errors import UserError
from nodeguard.sinks.log import Log, configure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.epilog = (
        "example: nodeguard agent --node-name gpu-7 --kubeconfig ~/.kube/config. "
               "Every flag is also an environment variable (--node-name: NODEGUARD_NODE_NAME) and a key of the "
               "settings file (node-name).")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="settings file (YAML); flags go before it")
    parser.add_argument("--record", type=Path, metavar="FILE",
                        help="write what the agent reads to FILE (.jsonl), for nodeguard replay")
    add_option_flags(parser, AGENT_OPTIONS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; 0 when stopped so."""
    # at once: the first process of a container is not ended by a signal that it does not handle (pid_namespaces(7))
    on_signals(lambda: sys.exit(0))
    flags = {option.name: getattr(args, option.name) for option in AGENT_OPTIONS}
    settings = resolve_agent_settings(flags, os.environ, args.settings)
    api = None if settings.no_kube else connect(settings.kubeconfig)
    if api is None and not settings.no_kube:
        raise UserError("no cluster: give --kubeconfig FILE, run as a pod with a service account, "
                        "or give --no-kube for log and metrics only")
    threading.stack_size(STACK)
    clock = SystemClock()
    log = configure(settings.log_level, clock=clock)
    agent = Agent(settings, clock, log, api, NO_TAPS if args.record is None else _recorder(args.record, log))
    on_signals(agent.stop)
    agent.run()
    return 0


def _recorder(path: Path, log: Log) -> Taps:
    # an agent that records nothing has no reader of recordings in its memory
    from nodeguard.app.record import Recorder  # noqa: PLC0415

    return Recorder(path, note=lambda text: log.warning("the recording ended", message=text))
