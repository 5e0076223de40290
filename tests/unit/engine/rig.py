"""An engine with rules written as in a rule file, and short words for what happens to it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from nodeguard.config.rules import load_rule_texts
from nodeguard.engine import memory
from nodeguard.engine.engine import Engine
from nodeguard.model.device import Device, gpu
from nodeguard.model.fault import Fault, Transition
from nodeguard.model.rule import RuleSet
from nodeguard.model.sample import Batch, Event, Fact, Sample, Told, Value

A, B, C = gpu("GPU-a"), gpu("GPU-b"), gpu("GPU-c")
TEMPERATURE = "gpu_temperature_celsius"
REPLAYS = "pcie_replay_total"


def rules(*written: Mapping[str, Any]) -> RuleSet:
    """A rule set; every rule is called ``r`` and does little unless it says otherwise."""
    entries = [{"name": "r", "severity": "warning", "action": "none", "effect": "event", **rule} for rule in written]
    text = json.dumps({"apiVersion": "nodeguard.io/v1", "kind": "RuleSet", "rules": entries})
    return load_rule_texts([("rules.yaml", text)])


def short(transition: Transition) -> str:
    """``at opened rule device``, with the old name after a re-keying."""
    fault = transition.fault
    was = "" if transition.was is None else f" was {transition.was}"
    return f"{transition.at:g} {transition.transition} {fault.rule} {fault.device}{was}"


class Rig:
    """One engine. With ``restarts`` the agent ends and starts again after every step, which nobody may notice."""

    def __init__(self, *written: Mapping[str, Any], restarts: bool = False, **options: Any) -> None:
        self._options = options
        self._restarts = restarts
        self.rules = rules(*written)
        self.engine = Engine(self.rules, **options)
        self.engine.sources.boot_id = "b1"
        self.transitions: list[Transition] = []

    def take(self, at: float, batch: Batch | None) -> list[str]:
        """One step; what it told."""
        return self._told(self.engine.step(at, batch))

    def _told(self, given: tuple[Transition, ...]) -> list[str]:
        self.transitions.extend(given)
        if self._restarts:
            self.restart()
        return [short(one) for one in given]

    def wait(self, at: float) -> list[str]:
        """Nothing happens until ``at``."""
        return self.take(at, None)

    def poll(
        self, at: float, device: Device = A, *, source: str = "nvml", complete: bool = False, **values: Value | None
    ) -> list[str]:
        """Readings of one device."""
        samples = tuple(Sample(name, device, value) for name, value in values.items())
        return self.take(at, Batch(source=source, samples=samples, complete=complete))

    def polls(self, at: float, signal: str, values: Mapping[Device, Value | None], source: str = "nvml") -> list[str]:
        """One reading each of several devices."""
        return self.take(at, Batch(source=source, samples=tuple(Sample(signal, *pair) for pair in values.items())))

    def read(self, at: float, signal: str, value: Value | None, device: Device = A) -> list[str]:
        """One reading."""
        return self.polls(at, signal, {device: value})

    def hot(self, at: float, value: Value | None, device: Device = A) -> list[str]:
        """A temperature."""
        return self.poll(at, device, gpu_temperature_celsius=value)

    def count(self, at: float, value: float | None, source: str = "nvml") -> list[str]:
        """A PCIe replay counter."""
        return self.poll(at, source=source, pcie_replay_total=value)

    def event(
        self,
        at: float,
        signal: str = "gpu_xid",
        device: Device = A,
        *,
        source: str = "kmsg",
        stamp: float | None = None,
        text: str = "",
        **attributes: Any,
    ) -> list[str]:
        """One occurrence."""
        event = Event(signal, device, attributes, stamp=stamp, text=text)
        return self.take(at, Batch(source=source, events=(event,)))

    def facts(self, at: float, *facts: Fact, source: str = "agent") -> list[str]:
        """Facts."""
        return self.take(at, Batch(source=source, facts=facts))

    def parts(self, at: float, *parts: Told, source: str = "kmsg") -> list[str]:
        """Several parts in order, in one batch."""
        first, *then = parts
        return self.take(
            at, Batch(source=source, samples=first.samples, events=first.events, facts=first.facts, then=tuple(then))
        )

    def reload(self, at: float, *written: Mapping[str, Any]) -> list[str]:
        """Another rule set."""
        self.rules = rules(*written)
        return self._told(self.engine.reload(self.rules, at))

    def restart(self) -> None:
        """The agent ends and starts again in the same boot, with what the store keeps."""
        old = self.engine
        node, boot = json.loads(json.dumps([memory.node_part(old), memory.boot_part(old)]))
        self.engine = Engine(self.rules, **self._options)
        memory.restore(self.engine, node, boot, boot_id=old.sources.boot_id, node_uid=old.node_uid, now=old.now)

    def reboot(self, boot_id: str, *, now: float, shift: float = 0.0) -> None:
        """The machine ended and starts again: engine time begins anew, only the node part is left."""
        old = self.engine
        node = json.loads(json.dumps(memory.node_part(old)))
        self.engine = Engine(self.rules, **self._options)
        memory.restore(self.engine, node, None, boot_id=boot_id, node_uid=old.node_uid, now=now, shift=shift)

    @property
    def open(self) -> list[str]:
        """``rule device`` of every open fault that is not muted, sorted."""
        return sorted(f"{fault.rule} {fault.device}" for fault in self.engine.open_faults())

    @property
    def fault(self) -> Fault:
        """The only open fault."""
        (fault,) = self.engine.open_faults()
        return fault


MakeRig = Callable[..., Rig]
