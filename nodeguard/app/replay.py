"""Replay: a recording through the same engine that the agent runs, as fast as the machine can."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodeguard.app.readers import readers
from nodeguard.engine import memory
from nodeguard.engine.engine import Engine
from nodeguard.model.errors import Problem, UserError
from nodeguard.model.fault import ACTIONS, EFFECTS, Fault, Transition, strongest
from nodeguard.model.rule import RuleSet
from nodeguard.sources.recording.memory import Memory
from nodeguard.sources.recording.reader import Act, Entry, Recording, Restart


class Player:
    """Runs acts through an engine."""

    def __init__(self, rules: RuleSet, *, soak: float = 0.0) -> None:
        """``soak`` in seconds; a replay has none unless asked for."""
        self._rules, self._soak = rules, soak
        self.engine = self._new_engine()
        self.at = 0.0

    def _new_engine(self) -> Engine:
        return Engine(self._rules, soak=self._soak, baseline={} if self._soak else None)

    def play(self, acts: Iterable[Act]) -> Iterator[Transition]:
        """The transitions, as they come."""
        for act in acts:
            self.at = act.at
            if isinstance(act.what, Restart):
                yield from self.engine.step(act.at)
                self.restart()
                yield from self.engine.step(act.at)
            elif isinstance(act.what, Memory):
                self.remember(act.what)
            else:
                yield from self.engine.step(act.at, act.what)

    def restart(self) -> None:
        """The agent ends and starts again, with what the store keeps."""
        old = self.engine
        node, boot = json.loads(json.dumps([memory.node_part(old), memory.boot_part(old)]))
        self.engine = self._new_engine()
        memory.restore(self.engine, node, boot, boot_id=old.sources.boot_id, node_uid=old.node_uid, now=self.at)

    def remember(self, what: Memory) -> None:
        """Begin where the agent that was recorded began. UserError: its memory is not understood."""
        self.engine = self._new_engine()
        try:
            memory.restore(self.engine, what.node, what.boot, boot_id=what.boot_id, node_uid=what.node_uid,
                           now=self.at)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"the recording's memory at {self.at:g} s is not understood "
                            f"({type(error).__name__}: {error}): it is of another version, or was changed") from error

    def final(self) -> dict[str, Any]:
        """How the node stands at the end."""
        intent = self.engine.intent()
        faults = self.engine.open_faults()
        return {
            "effect": strongest(EFFECTS, *(fault.effect for fault in faults)),
            "action": strongest(ACTIONS, *(fault.action for fault in faults)),
            "conditions": {one.type: {"status": one.status, "reason": one.reason, "message": one.message}
                           for one in intent.conditions},
            "taints": [] if intent.taint is None else [f"nodeguard.io/unhealthy={intent.taint}:NoSchedule"],
            "faults": [fault_row(fault) for fault in faults],
            "counters": counters(self.engine),
        }


def fault_row(fault: Fault) -> dict[str, Any]:
    """An open fault as JSON."""
    return {"rule": fault.rule, "device": fault.device, "pci": fault.pci, "severity": fault.severity,
            "action": fault.action, "effect": fault.effect, "would": fault.would, "scope": fault.scope,
            "condition": fault.condition, "message": fault.message, "since": fault.since, "last": fault.last,
            "count": fault.count, "evidence": dict(fault.evidence),
            "pods": None if fault.pods is None else [{"uid": pod.uid, "namespace": pod.namespace, "name": pod.name}
                                                     for pod in fault.pods]}


def transition_row(transition: Transition) -> dict[str, Any]:
    """A transition as JSON."""
    fault = transition.fault
    row = {"at": transition.at, "transition": transition.transition, "rule": fault.rule, "device": fault.device,
           "severity": fault.severity, "action": fault.action, "effect": fault.effect, "would": fault.would,
           "detail": transition.detail}
    return row if transition.was is None else {**row, "was": transition.was}


def counters(engine: Engine) -> Mapping[str, int]:
    """What the sources counted, and every event by signal."""
    totals: dict[str, int] = dict(engine.counts)
    for (signal, _, _), count in engine.event_counts.items():
        name = f"{signal}_total"
        totals[name] = totals.get(name, 0) + count
    return totals


def open_recording(entries: Iterable[Entry], file: str, problems: list[Problem]) -> Iterator[Act]:
    """The acts of a recording's entries, with every parser that the agent has."""
    return new_recording(file, problems).acts(entries)


def new_recording(file: str, problems: list[Problem]) -> Recording:
    """A reader of one recording."""
    return Recording(file, problems, readers())


def judged_otherwise(recording: Recording, rules: RuleSet) -> str | None:
    """One sentence where the agent that recorded judged by other rules than these, after the recording was read."""
    others = sorted({one.rules for one in recording.recorded} - {rules.hash, ""})
    if not others:
        return None
    return (f"the agent that recorded this judged by the rules {', '.join(others)}, and the replay by {rules.hash}: "
            "it may judge otherwise")
