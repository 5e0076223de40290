"""What commands share: flags made of options, and the signals that end a command."""

import argparse
import signal
from collections.abc import Callable, Iterable

from nodeguard.config.options import Option

STACK = 512 * 1024
"""Bytes a thread; the default of 8 MiB is address space that a small container need not have."""


def add_option_flags(parser: argparse.ArgumentParser, options: Iterable[Option]) -> None:
    """Add a flag for each option; one that is not given is None."""
    for option in options:
        if option.switch:
            parser.add_argument(option.flag, action="store_const", const=True, help=option.help)
        elif option.many:
            parser.add_argument(option.flag, action="append", metavar=option.metavar, help=option.help)
        else:
            parser.add_argument(option.flag, metavar=option.metavar, help=option.help)


def on_signals(end: Callable[[], None]) -> None:
    """Call ``end`` at SIGTERM and SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: end())
