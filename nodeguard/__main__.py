"""``nodeguard`` and ``python -m nodeguard``."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from nodeguard import __version__
from nodeguard.cli import COMMANDS
from nodeguard.model.errors import NodeguardError, UserError

EXIT_STOPPED, EXIT_CRASHED, EXIT_USER = 0, 1, 2


def parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The command line. Only the command in use is imported: the agent's memory holds nothing of the others."""
    top = argparse.ArgumentParser(
        prog="nodeguard", description="Sees a broken GPU, link or host and says so on the Kubernetes Node.",
        epilog="example: nodeguard demo")
    top.add_argument("--version", action="version", version=f"nodeguard {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    for name, what in COMMANDS.items():
        command = commands.add_parser(name, help=what, description=what[:1].upper() + what[1:] + ".")
        if name == wanted:
            importlib.import_module(f"nodeguard.cli.{name}").add_arguments(command)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        args = parser(words).parse_args(words)
        code = int(args.run(args))
        sys.stdout.flush()
    except UserError as error:
        return _fail(error, EXIT_USER)
    except NodeguardError as error:
        return _fail(error, EXIT_CRASHED)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # whoever read the output has what it wanted; a second failure at exit must not say otherwise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _fail(error: NodeguardError, code: int) -> int:
    for line in str(error).splitlines():
        print(f"nodeguard: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
