"""Many agents in one process, on a clock that the test moves: each as ``nodeguard.app.agent`` puts it together.

Shared by all of them, because their mounts and readings are the same: one RuleSource that looks at the ConfigMap's
mount, and one simulated driver below real pynvml, whose polls every engine takes. Each has an engine and a Node writer
of its own, with a client under a token that is bound to its own Node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from nodeguard.app.rulesource import RuleSource
from nodeguard.app.sinkset import cluster
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.engine.engine import Engine
from nodeguard.model.device import NODE
from nodeguard.model.sample import Batch, Booted, KindsHere, Sample, SourceState
from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sim.node import SimulatedNode
from nodeguard.sinks.log import configure
from nodeguard.sources.nvml import NvmlSource
from nodeguard.vendors.nvidia.nvml import Nvml
from nodeguard.vendors.nvidia.pci import Bus

from .manifests import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from nodeguard.kube.client import KubeClient
    from nodeguard.model.clock import Clock, FakeClock
    from nodeguard.model.rule import RuleSet
    from nodeguard.sinks.log import Log

_SETTLING = 60
"""Turns within which a writer has nothing left to do at one moment."""


class Agent:
    """One node's engine and Node writer."""

    def __init__(self, node: str, api: KubeClient, rules: RuleSet, baseline: Mapping[str, str], *,
                 soak: float, clock: Clock, log: Log) -> None:
        self.node = node
        self._clock = clock
        self.engine = Engine(rules, node_name=node, configured=("kmsg", "nvml"), soak=soak, baseline=baseline)
        self.writer = cluster(api, node, NAMESPACE, clock, log).node
        self.take(Batch(source="agent", facts=(Booted("b1", 0.0), KindsHere(frozenset({"gpu"}))),
                        samples=(Sample("rules_invalid", NODE, 0), Sample("state_unwritable", NODE, 0))))
        self.take(Batch(source="kmsg", facts=(SourceState(up=True),)))

    def take(self, batch: Batch | None) -> None:
        """What the loop does with a batch, or with time that passed."""
        self.engine.step(self._clock.boot(), batch)

    def write(self) -> None:
        """Bring the Node to what the engine wants now, as far as the writer's own pace lets it."""
        self.writer.publish(self.engine.intent())
        for _ in range(_SETTLING):
            if self.writer.turn() > 0.0:
                return
        raise AssertionError(f"{self.node}: the writer does not come to rest: {self.writer.status}")


class Fleet:
    """Agents on nodes that are alike. A context manager: inside it the simulated driver is installed."""

    def __init__(self, clients: Mapping[str, KubeClient], mount: Path, clock: FakeClock, *,
                 soak: str, temperature: int) -> None:
        """``soak`` as the flag takes it; every GPU is at ``temperature`` degrees Celsius."""
        settings = resolve_agent_settings(
            {"node_name": "fleet", "no_kube": True, "overrides": str(mount), "soak": soak}, {})
        log = configure("warning", clock=clock)
        self._clock = clock
        self._hardware = SimulatedNode("fleet", gpus=2)
        self._driver = SimulatedDriver.at(self._hardware.slots, self._hardware.uuids)
        for gpu in self._driver.gpus:
            gpu.temperature = temperature
        self._nvml = NvmlSource(Nvml(), Bus(self._hardware.sys_root).gpus, clock)
        self.rules = RuleSource(settings, log)
        rules, baseline = self.rules.load({}), self.rules.baseline()
        self.agents = [Agent(node, api, rules, baseline, soak=settings.soak, clock=clock, log=log)
                       for node, api in clients.items()]

    def __enter__(self) -> Self:
        self._hardware.__enter__()
        self._hardware.attach(self._driver)
        self._driver.install()
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.uninstall()
        self._nvml.end()
        self._hardware.__exit__(None, None, None)

    def pass_time(self, seconds: float, *, polls_every: float = 1.0) -> None:
        """Poll NVML and look at the rules again and again; nothing is written."""
        end = self._clock.boot() + seconds
        while self._clock.boot() < end:
            self._clock.advance(min(polls_every, end - self._clock.boot()))
            for batch in self._poll():
                for agent in self.agents:
                    agent.take(batch)
            self._look_at_rules()

    def _poll(self) -> Iterator[Batch]:
        batches: list[Batch] = []
        self._nvml.turn(batches.append)
        yield from batches

    def _look_at_rules(self) -> None:
        found = self.rules.poll(self._clock.boot())
        if found is None:
            return
        assert not self.rules.invalid, self.rules.invalid
        for agent in self.agents:
            agent.engine.reload(found, self._clock.boot())

    def write(self) -> None:
        """Every agent brings its Node up to date."""
        for agent in self.agents:
            agent.write()
