"""``nodeguard doctor``: what this node lets the agent see and do, and why not."""

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from nodeguard.app.doctor import Doors, diagnose
from nodeguard.app.doctor_finding import Finding, exit_code
from nodeguard.app.doctor_system import kernel_log_bytes
from nodeguard.cli import agent
from nodeguard.config.options import AGENT_OPTIONS
from nodeguard.config.settings import AgentSettings, resolve_agent_settings
from nodeguard.kube.client import KubeClient, connect
from nodeguard.model.clock import SystemClock
from nodeguard.model.errors import UserError
from nodeguard.sources.host_clock import wall_clock
from nodeguard.vendors.nvidia.nvml import Nvml


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the agent's own flags, so that doctor looks where the agent with these flags would."""
    agent.add_arguments(parser)
    parser.epilog = (
        "example: kubectl exec -n nodeguard POD -- nodeguard doctor. Flags, environment variables and settings file "
        "are the agent's. Exit code 0: all is well; 1: the agent cannot see something; 2: a setting is wrong.")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="json: one object a line")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print every finding; 0, 1 for a blind spot, 2 for a user's mistake."""
    flags = {option.name: getattr(args, option.name) for option in AGENT_OPTIONS}
    settings = resolve_agent_settings(flags, os.environ, args.settings)
    findings = diagnose(settings, Doors(
        driver=Nvml(settings.nvml_library), api=_api(settings), ring=kernel_log_bytes, kept=wall_clock,
        clock=SystemClock(), kubelet_root=settings.kubelet_root, pods_log_root=settings.pods_log_root))
    for line in (_json if args.output == "json" else _text)(findings):
        print(line)
    return exit_code(findings)


def _api(settings: AgentSettings) -> KubeClient | UserError | None:
    if settings.no_kube:
        return None
    try:
        return connect(settings.kubeconfig) or UserError(
            "no cluster: give --kubeconfig FILE, run as a pod with a service account, or give --no-kube")
    except UserError as error:
        return error


def _json(findings: Sequence[Finding]) -> Iterator[str]:
    for one in findings:
        yield json.dumps({name: value for name, value in asdict(one).items() if name != "mistake"})


def _text(findings: Sequence[Finding]) -> Iterator[str]:
    width = max(len(one.check) for one in findings)
    for one in findings:
        yield f"{one.verdict:<7}  {one.check:<{width}}  {one.says}"
        if one.do:
            yield f"{'':<7}  {'':<{width}}  -> {one.do}"
    counts = Counter(one.verdict for one in findings)
    yield ", ".join(f"{counts[word]} {word}" for word in ("ok", "warning", "blind", "skipped") if counts[word])
