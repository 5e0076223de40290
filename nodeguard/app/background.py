"""Agent and remediation loop on threads of this process, for what runs them beside other things: demo and drills."""

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path

from nodeguard.app.agent import Agent
from nodeguard.app.remediator import Remediator
from nodeguard.config.remediate import resolve_remediate_settings
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.kube.api import Api
from nodeguard.kube.client import KubeClient
from nodeguard.model.clock import SystemClock
from nodeguard.remediation.happenings import Tell
from nodeguard.sinks.log import Log, configure

_LOOPBACK = "127.0.0.1:0"


@contextlib.contextmanager
def agent_on_a_thread(settings: Mapping[str, str], kubeconfig: Path, *, more: Mapping[str, object] | None = None,
                      show_log: bool = False) -> Iterator[None]:
    """Run an agent with these settings (by name; port 0 on loopback) until the context ends; then its state is saved.

    ``more``: settings that hold for every node. UserError: a setting or the kubeconfig cannot be used.
    """
    resolved = resolve_agent_settings({"listen": _LOOPBACK, **(more or {}), **settings}, {})
    agent = Agent(resolved, SystemClock(), _log(show_log=show_log), KubeClient.from_kubeconfig(kubeconfig))
    with _running(agent, "agent"):
        yield


@contextlib.contextmanager
def loop_on_a_thread(policy: Path, namespace: str, api: Api, tell: Tell, *, show_log: bool = False) -> Iterator[None]:
    """Run the remediation loop with this policy until the context ends; then its Lease is given back.

    ``tell`` is told every happening on the loop's own thread. UserError: the policy cannot be used.
    """
    settings = resolve_remediate_settings(
        {"policy": str(policy), "namespace": namespace, "listen": _LOOPBACK}, {})
    with _running(Remediator(settings, SystemClock(), _log(show_log=show_log), api, (tell,)), "remediation"):
        yield


@contextlib.contextmanager
def _running(part: Agent | Remediator, name: str) -> Iterator[None]:
    thread = threading.Thread(target=part.run, name=name)
    thread.start()
    try:
        yield
    finally:
        part.stop()
        thread.join()


def _log(*, show_log: bool) -> Log:
    return configure("info", sys.stderr if show_log else StringIO())
