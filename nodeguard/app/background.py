"""The agent on a thread of this process, for what runs it beside other things: the demo and drills."""

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path

from nodeguard.app.agent import Agent
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.kube.client import KubeClient
from nodeguard.model.clock import SystemClock
from nodeguard.sinks.log import configure


@contextlib.contextmanager
def agent_on_a_thread(settings: Mapping[str, str], kubeconfig: Path, *, show_log: bool = False) -> Iterator[None]:
    """Run an agent with these settings (by name; port 0 on loopback) until the context ends; then its state is saved.

    UserError: a setting or the kubeconfig cannot be used.
    """
    resolved = resolve_agent_settings({"listen": "127.0.0.1:0", **settings}, {})
    log = configure("info", sys.stderr if show_log else StringIO())
    agent = Agent(resolved, SystemClock(), log, KubeClient.from_kubeconfig(kubeconfig))
    thread = threading.Thread(target=agent.run, name="agent")
    thread.start()
    try:
        yield
    finally:
        agent.stop()
        thread.join()
