"""``nodeguard demo``: breaks a GPU of one of three simulated nodes and shows how fast its Node says so."""

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from nodeguard.app.background import agent_on_a_thread
from nodeguard.kube.api import node_path
from nodeguard.kube.client import KubeClient
from nodeguard.model.errors import ApiError
from nodeguard.sim.apiserver import EmbeddedApiServer
from nodeguard.sim.fleet import Fleet
from nodeguard.sim.scenarios import SCENARIOS
from nodeguard.sim.story import Story
from nodeguard.sim.timeline import Watcher

_NODES = 3
_GPUS = 8
_FAULTY_NODE, _FAULTY_GPU = 1, 3
_NODES_PATH = "/api/v1/nodes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.epilog = "example: nodeguard demo"
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE",
                        help="use this cluster's API, not the embedded server; the simulated nodes are removed after")
    parser.add_argument("--scenario", choices=SCENARIOS, default="ecc",
                        help="what breaks: " + "; ".join(f"{name}: {one.title}" for name, one in SCENARIOS.items()))
    parser.add_argument("--log", action="store_true", help="show the agents' own log on stderr")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the timeline; exit 1 when something did not come in time."""
    mark = f"{time.monotonic_ns() % 10**8:08d}"
    names = [f"nodeguard-demo-{mark}-{number}" for number in range(_NODES)]
    # the nodes first: a process is best started while this one has a single thread
    with _interruptible_once(), Fleet(names, _GPUS) as fleet, _cluster(args.kubeconfig) as (kubeconfig, where):
        api = KubeClient.from_kubeconfig(kubeconfig)
        print(f"{where}; {_NODES} simulated nodes {names[0]} to {_NODES - 1}, {_GPUS} GPUs and an agent each")
        with _registered(api, names), _watched(api, names) as watchers:
            others = [watcher for number, watcher in enumerate(watchers) if number != _FAULTY_NODE]
            story = Story(SCENARIOS[args.scenario], fleet.nodes[_FAULTY_NODE], _FAULTY_GPU, watchers[_FAULTY_NODE],
                          others)
            with fleet.agents(partial(agent_on_a_thread, show_log=args.log), kubeconfig):
                for line in story.lines():
                    print(line, flush=True)
    return 0


@contextlib.contextmanager
def _interruptible_once() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the command in order, exit code 128 + signal; a second one cannot hurry the tidying up."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def end(number: int, _frame: object) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _cluster(kubeconfig: Path | None) -> Iterator[tuple[Path, str]]:
    if kubeconfig is not None:
        yield kubeconfig, f"cluster of {kubeconfig}"
        return
    with EmbeddedApiServer() as server, TemporaryDirectory(prefix="nodeguard-demo-") as folder:
        path = Path(folder) / "kubeconfig"
        server.write_kubeconfig(path)
        yield path, "embedded API server"


@contextlib.contextmanager
def _registered(api: KubeClient, names: Sequence[str]) -> Iterator[None]:
    try:
        for name in names:
            api.post(_NODES_PATH, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        yield
    finally:
        for name in names:
            with contextlib.suppress(ApiError):
                api.delete(node_path(name))


@contextlib.contextmanager
def _watched(api: KubeClient, names: Sequence[str]) -> Iterator[list[Watcher]]:
    with contextlib.ExitStack() as stack:
        watchers = [Watcher(api, name) for name in names]
        for watcher in watchers:
            watcher.start()
            stack.callback(watcher.stop)
        yield watchers
