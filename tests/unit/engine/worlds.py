"""Random rule sets and random histories for the engine, written in the rule language and in batches.

Drawn from a seed and two lengths: hypothesis finds the shortest history and the fewest rules for a seed, which is all
the shrinking that such a failure needs, and examples cost a hundredth of what composed strategies do.
"""

import random
from typing import Any

from nodeguard.model.device import NODE, gpu_at, mig, rdma_port
from nodeguard.model.sample import (
    Batch,
    Booted,
    Event,
    Expected,
    Fact,
    Identified,
    Missed,
    PersonCleared,
    PodRef,
    Pods,
    Present,
    Renamed,
    Repaired,
    Sample,
    SourceState,
    Stalled,
    Told,
)

from .rig import A, B

SLOT = "0000:3b:00.0"
GPUS = (A, B, gpu_at(SLOT), mig(A, 5))
PORTS = (rdma_port("mlx5_0", 1), rdma_port("mlx5_1", 1))
DURATIONS = ("1s", "3s", "10s", "30s")
NAMES = ("r0", "r1", "r2", "r3")

_COMPANIONS: dict[str, list[dict[str, Any]]] = {
    "gpu": [{"signal": "gpu_power_watts", "above": 1}, {"signal": "gpu_recovery_action", "is": 0}],
    "node": [{"signal": "host_memory_available_ratio", "above": 1}],
    "rdma_port": [{"signal": "rdma_port_phys_state", "is": "LinkUp"}],
}
_COUNTERS = ("pcie_replay_total", "gpu_row_remap_uncorrected_total")
_NUMBERS = (
    "gpu_temperature_celsius",
    "pcie_link_width",
    *_COUNTERS,
    "gpu_power_watts",
    "gpu_recovery_action",
    "gpu_row_remap_pending",
)
_PAUSES = (0.0, 0.5, 1.0, 1.0, 1.7, 4.3, 11.0, 31.0, 310.0)


class World:
    """Everything drawn from one seed."""

    def __init__(self, seed: int, rules: int, batches: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 # a test's world is no secret
        self.rules = self._rule_set(rules)
        self.history = self._history(batches)

    def __repr__(self) -> str:
        return "\n".join(map(str, ["World", *self.rules, *self.history]))

    def _one(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _often(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def _rule_set(self, number: int) -> list[dict[str, Any]]:
        rules: list[dict[str, Any]] = []
        for name in NAMES[:number]:
            kind, rule = self._rule()
            rule = {
                "name": name,
                **rule,
                "action": self._one("none", "reset_gpu"),
                "mode": self._one("enforce", "observe"),
            }
            for other in rules:
                if other.get("across", {}).get("kind") == kind and "across" not in rule and self._often(50):
                    other["mutes"] = [name]
            rules.append(rule)
        return rules

    def _rule(self) -> tuple[str, dict[str, Any]]:
        form = self._one("gauge", "state", "counter", "event", "count", "left", "absent", "stall", "steady")
        kind, test, over = self._test(form)
        if form not in ("event", "count") and self._often(50):
            test["for"] = self._one(*DURATIONS, {"samples": 2}, {"samples": 3})
        if self._often(25):
            test["require"] = [self._one(*_COMPANIONS[kind])]
        if form not in ("event", "stall", "steady") and self._often(30):
            test["across"] = {"kind": kind, "at_least": self._one(1, 2, "all")}
        if form == "event" or self._often(50):
            test["clear"] = self._clear(kind, over)
        return kind, test

    def _test(self, form: str) -> tuple[str, dict[str, Any], dict[str, Any]]:  # noqa: PLR0911 # one a form
        """Kind of device, the test, and a level that ends it where one may."""
        one, span = self._one, self._one(*DURATIONS)
        match form:
            case "gauge":
                operand = one(0, 1, 2, 3, {"signal": "gpu_power_watts", "plus": one(-1, 0, 1)})
                return "gpu", {"signal": one(*_NUMBERS[:2]), one("above", "below"): operand}, {"below": 1}
            case "state":
                return "gpu", {"signal": "gpu_recovery_action", one("is", "is_not"): one(0, 1, [1, 2])}, {"is": 0}
            case "counter":
                test = one({"increase": {"at_least": 2, "within": span}}, {"rate": {"above": 0.5, "over": span}})
                return "gpu", {"signal": one(*_COUNTERS), **test}, {}
            case "event":
                match_ = one({"code": 1}, {"code": [1, 2]}, {"code": {"not": 1}}, {"word": {"regex": "fat.*"}})
                return "gpu", {"signal": "gpu_xid", "match": match_}, {}
            case "count":
                more = one({}, {"distinct": "pod"}, {"distinct": "code"}, {"same": ["code"]})
                return "gpu", {"signal": "gpu_xid", "count": {"at_least": one(1, 2, 3), "within": span, **more}}, {}
            case "left":
                return "rdma_port", {"signal": "rdma_port_state", "left": ["ACTIVE"]}, {}
            case "absent":
                return "gpu", {"signal": "gpu_temperature_celsius", "absent": {}}, {}
            case "stall":
                return "gpu", {"signal": "source_stalled_seconds", "above": one(1, 3, 5)}, {"below": 1}
        return "node", {"signal": "source_up", "is": 0}, {"is": 1}

    def _clear(self, kind: str, over: dict[str, Any]) -> dict[str, Any]:
        evidence = self._one("reset", "reboot", "replace", "never")
        after = self._one(*DURATIONS)
        forms = [
            {"on": evidence},
            {"after": after},
            {"on": evidence, "after": after},
            {"after": after, "while": self._one(*_COMPANIONS[kind])},
        ]
        forms += [over, {**over, "after": after}, {**over, "on": evidence}] if over else []
        return dict(self._one(*forms))

    def _history(self, number: int) -> list[tuple[float, Batch]]:
        at, found = 0.0, []
        for _ in range(number):
            at += self._one(*_PAUSES)
            first, then = self._part(at), (self._part(at),) if self._often(20) else ()
            source = self._one("nvml", "nvml", "kmsg", "rdma", "nvml_events")
            found.append(
                (
                    at,
                    Batch(
                        source=source,
                        samples=first.samples,
                        events=first.events,
                        facts=first.facts,
                        then=then,
                        complete=self._often(30),
                    ),
                )
            )
        return found

    def _part(self, at: float) -> Told:
        return Told(
            tuple(self._sample() for _ in range(self._one(0, 1, 3, 5))),
            tuple(self._event() for _ in range(self._one(0, 0, 1, 2))),
            tuple(self._fact(at) for _ in range(self._one(0, 0, 1))),
        )

    def _sample(self) -> Sample:
        if self._often(20):
            word = self._one("ACTIVE", "DOWN", None)
            found: Sample = self._one(
                Sample("rdma_port_state", self._one(*PORTS), word),
                Sample("rdma_port_phys_state", self._one(*PORTS), self._one("LinkUp", "Polling")),
                Sample("host_memory_available_ratio", NODE, self._one(0, 2, None)),
            )
            return found
        return Sample(self._one(*_NUMBERS), self._one(*GPUS[:3]), self._one(0, 1, 2, 3, 4, None))

    def _event(self) -> Event:
        word = self._one({}, {"word": "fatal"}, {"word": "x"})
        return Event("gpu_xid", self._one(*GPUS), {"code": self._one(1, 2, 3), **word})

    def _fact(self, at: float) -> Fact:
        one = self._one
        here, device = frozenset(gpu for gpu in (A, B) if self._often(60)), one(A, B)
        fact: Fact = one(
            Identified(one(SLOT, "0000:5e:00.0"), device),
            Present("gpu", here),
            Missed(one(None, here)),
            SourceState(up=one(True, False), caught_up=one(True, False)),
            Stalled(device, one(None, at)),
            Repaired(device, one("reset_gpu", "reboot_node", "replace_hw")),
            Booted(one("b1", "b2", "b3"), at),
            PersonCleared(one(*NAMES), one(None, device), at),
            Pods({device: (PodRef(one("p1", "p2", "p3")),)}),
            Expected(here),
            Renamed(*PORTS),
        )
        return fact
