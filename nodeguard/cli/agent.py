"""``nodeguard agent``: watches this node and says on its Node what is broken."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from nodeguard.app.agent import Agent
from nodeguard.config.options import AGENT_OPTIONS
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.kube.client import connect
from nodeguard.model.clock import SystemClock
from nodeguard.model.errors import UserError
from nodeguard.sinks.log import configure

_STACK = 512 * 1024
"""Bytes a thread; the default of 8 MiB is address space that a small container need not have."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.epilog = (
        "example: nodeguard agent --node-name gpu-7 --kubeconfig ~/.kube/config. "
               "Every flag is also an environment variable (--node-name: NODEGUARD_NODE_NAME) and a key of the "
               "settings file (node-name).")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="settings file (YAML); flags go before it")
    for option in AGENT_OPTIONS:
        if option.switch:
            parser.add_argument(option.flag, action="store_const", const=True, help=option.help)
        elif option.many:
            parser.add_argument(option.flag, action="append", metavar=option.metavar, help=option.help)
        else:
            parser.add_argument(option.flag, metavar=option.metavar, help=option.help)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; 0 when stopped so."""
    # at once: the first process of a container is not ended by a signal that it does not handle (pid_namespaces(7))
    _on_signals(lambda: sys.exit(0))
    flags = {option.name: getattr(args, option.name) for option in AGENT_OPTIONS}
    settings = resolve_agent_settings(flags, os.environ, args.settings)
    api = None if settings.no_kube else connect(settings.kubeconfig)
    if api is None and not settings.no_kube:
        raise UserError("no cluster: give --kubeconfig FILE, run as a pod with a service account, "
                        "or give --no-kube for log and metrics only")
    threading.stack_size(_STACK)
    clock = SystemClock()
    agent = Agent(settings, clock, configure(settings.log_level, clock=clock), api)
    _on_signals(agent.stop)
    agent.run()
    return 0


def _on_signals(end: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: end())
