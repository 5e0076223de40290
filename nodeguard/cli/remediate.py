"""``nodeguard remediate``: the loop that moves training pods away from faulty nodes."""

import argparse
import json
import os
import sys
import threading
from pathlib import Path

from nodeguard.app.remediator import Remediator
from nodeguard.cli.flags import STACK, add_option_flags, on_signals
from nodeguard.config.policy import load_policy
from nodeguard.config.policy_schema import policy_json_schema
from nodeguard.config.remediate import REMEDIATE_OPTIONS, RemediateSettings, resolve_remediate_settings
from nodeguard.kube.client import connect
from nodeguard.model.clock import SystemClock
from nodeguard.model.errors import UserError
from nodeguard.sinks.log import configure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.epilog = (
        "example: nodeguard remediate --kubeconfig ~/.kube/config --policy policy.yaml --dry-run. Of several replicas "
        "one acts. Every flag is also an environment variable (--policy: NODEGUARD_POLICY) and a key of the settings "
        "file (policy).")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="settings file (YAML); flags go before it")
    add_option_flags(parser, REMEDIATE_OPTIONS)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--check", action="store_true",
                         help="only say whether the policy is valid, with every mistake's line and column")
    instead.add_argument("--policy-schema", action="store_true",
                         help="only print the JSON Schema of policies, for editors")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; 0 when stopped so."""
    # at once: the first process of a container is not ended by a signal that it does not handle (pid_namespaces(7))
    on_signals(lambda: sys.exit(0))
    if args.policy_schema:
        print(json.dumps(policy_json_schema(), indent=2))
        return 0
    flags = {option.name: getattr(args, option.name) for option in REMEDIATE_OPTIONS}
    settings = resolve_remediate_settings(flags, os.environ, args.settings)
    return _check(settings) if args.check else _remediate(settings)


def _check(settings: RemediateSettings) -> int:
    policy = load_policy(settings.policy)
    print(f"the policy {settings.policy} is valid, hash {policy.hash}")
    return 0


def _remediate(settings: RemediateSettings) -> int:
    api = connect(settings.kubeconfig)
    if api is None:
        raise UserError("no cluster: give --kubeconfig FILE, or run as a pod with a service account")
    threading.stack_size(STACK)
    clock = SystemClock()
    remediator = Remediator(settings, clock, configure(settings.log_level, clock=clock), api)
    on_signals(remediator.stop)
    remediator.run()
    return 0
