"""``nodeguard demo``: breaks a GPU below a training Job on simulated nodes, and shows the Job run again."""

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from nodeguard.app.background import agent_on_a_thread, loop_on_a_thread
from nodeguard.app.remediator import LEASE_NAME
from nodeguard.kube.client import KubeClient
from nodeguard.model.errors import UserError
from nodeguard.sim.apiserver import EmbeddedApiServer
from nodeguard.sim.cluster import SimulatedControllers
from nodeguard.sim.cluster_stage import Stage
from nodeguard.sim.cluster_storm import BUDGET_PERCENT, NODES, TITLE, Crowd, StormStory
from nodeguard.sim.cluster_told import Told
from nodeguard.sim.cluster_view import ClusterView
from nodeguard.sim.fleet import Fleet
from nodeguard.sim.scenarios import SCENARIOS, Scenario
from nodeguard.sim.story import Scene, Story

STORM = "storm"
SCENARIO_NAMES = (*SCENARIOS, STORM)

_NODES = 3
_GPUS = 8
_FAULTY_GPU = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    titles = {**{name: one.title for name, one in SCENARIOS.items()}, STORM: TITLE}
    parser.epilog = "example: nodeguard demo --scenario xid79"
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE",
                        help="use this cluster's API, scheduler and Job controller, not the embedded imitations; the "
                             "simulated nodes take no other pods, and everything is removed after")
    parser.add_argument("--scenario", choices=SCENARIO_NAMES, default="ecc",
                        help="what breaks: " + "; ".join(f"{name}: {title}" for name, title in titles.items()))
    parser.add_argument("--log", action="store_true", help="show the log of agents and loop on stderr")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the timeline; exit 1 when something did not come in time."""
    if args.kubeconfig is not None:
        # a mistake is told before anything is started
        given = KubeClient.from_kubeconfig(args.kubeconfig)
        if args.scenario == STORM:
            _refuse_beside_a_loop(given, args.kubeconfig)
    mark = f"{time.monotonic_ns() % 10**8:08d}"
    names = [f"nodeguard-demo-{mark}-{number}" for number in range(_NODES)]
    # the nodes first: a process is best started while this one has a single thread
    with (_interruptible_once(), Fleet(names, _GPUS) as fleet,
          TemporaryDirectory(prefix="nodeguard-demo-") as folder,
          _cluster(args.kubeconfig, Path(folder)) as (kubeconfig, where)):
        api = KubeClient.from_kubeconfig(kubeconfig)
        with Stage(api, fleet.nodes, mark) as stage:
            print(f"{where}; {_NODES} simulated nodes {names[0]} to {_NODES - 1}, {_GPUS} GPUs and an agent each")
            scenario = SCENARIOS.get(args.scenario)
            for line in _told(stage, fleet, kubeconfig, Path(folder), scenario, show_log=args.log):
                print(line, flush=True)
    return 0


def _told(stage: Stage, fleet: Fleet, kubeconfig: Path, folder: Path,  # noqa: PLR0913 - the whole product
          scenario: Scenario | None, *, show_log: bool) -> Iterator[str]:
    """The story of a scenario (None: the storm) while agents and loop run."""
    told, policy = Told(), folder / "policy.yaml"
    policy.write_text(json.dumps(_policy(scenario)))
    run_agent = partial(agent_on_a_thread, more=_agent_settings(stage, folder, scenario), show_log=show_log)
    with contextlib.ExitStack() as stack:
        if scenario is not None and scenario.prepare is not None:
            for node in fleet.nodes:
                node.do(scenario.prepare, _FAULTY_GPU)
        scene = Scene(stage, stack.enter_context(ClusterView(stage.api)), fleet.nodes, told)
        story: Story | StormStory
        if scenario is not None:
            story = Story(scenario, _FAULTY_GPU, scene)
        else:
            crowd = Crowd(stage, [f"{stage.namespace}-more-{number}" for number in range(NODES)])
            story = StormStory(scene, stack.enter_context(crowd))
        stack.enter_context(loop_on_a_thread(policy, stage.namespace, stage.api, told.tell, show_log=show_log))
        stack.enter_context(fleet.agents(run_agent, kubeconfig))
        yield from story.lines()


def _policy(scenario: Scenario | None) -> dict[str, object]:
    """The shipped policy, but a node is released after 2 s; in the storm the brake on single rules is kept out."""
    policy: dict[str, object] = {
        "apiVersion": "nodeguard.io/v1", "kind": "RemediationPolicy", "metadata": {"name": "demo"},
        "release": {"healthyFor": "2s"}, "exclude": {"nodeLabels": []}}
    if scenario is None:
        policy |= {"budget": {"maxUnavailable": f"{BUDGET_PERCENT}%"}, "ruleBrake": {"nodes": 1000}}
    return policy


def _agent_settings(stage: Stage, folder: Path, scenario: Scenario | None) -> dict[str, object]:
    settings: dict[str, object] = {"namespace": stage.namespace}
    if scenario is not None and scenario.overrides:
        overrides = folder / "overrides"
        overrides.mkdir()
        (overrides / "demo.yaml").write_text(scenario.overrides)
        settings |= {"overrides": [str(overrides)], "soak": "0s"}
    return settings


def _refuse_beside_a_loop(api: KubeClient, kubeconfig: Path) -> None:
    """A loop counts every node that is newly at fault, also those that it is told to leave alone."""
    held = api.get("/apis/coordination.k8s.io/v1/leases", {"fieldSelector": f"metadata.name={LEASE_NAME}"})["items"]
    if any((lease.get("spec") or {}).get("holderIdentity") for lease in held):
        raise UserError(f"{kubeconfig}: nodeguard remediate runs in this cluster, and would stand still for a storm of "
                        "simulated nodes; leave --kubeconfig out, or choose another scenario")


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
def _cluster(kubeconfig: Path | None, folder: Path) -> Iterator[tuple[Path, str]]:
    if kubeconfig is not None:
        yield kubeconfig, f"cluster of {kubeconfig}"
        return
    with EmbeddedApiServer() as server:
        path = folder / "kubeconfig"
        server.write_kubeconfig(path)
        with SimulatedControllers(KubeClient.from_kubeconfig(path)):
            yield path, "embedded API server, scheduler and Job controller (imitations)"
