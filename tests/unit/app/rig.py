"""Recordings as text, played with the shipped rules or with a few of one's own."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from nodeguard.app.replay import Player, open_recording, transition_row
from nodeguard.config.rules import load_rule_texts, load_rules
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.model.errors import Problem  # noqa: TC001 # an attribute's type
from nodeguard.model.rule import RuleSet
from nodeguard.sources.recording.reader import Entry, entries_of_yaml

XID = {
    "name": "xid",
    "signal": "gpu_xid",
    "match": {"code": 48},
    "clear": {"after": "10m"},
    "effect": "evict",
    "action": "reset_gpu",
    "condition": "GpuMemoryFault",
}
LINE = "NVRM: Xid (PCI:0000:3b:00): 48, DBE"


@cache
def shipped() -> RuleSet:
    """The rules of the image."""
    return load_rules([shipped_rules_dir()])


def rules(*written: Mapping[str, Any]) -> RuleSet:
    """A few rules; every one is called ``r`` and does little unless it says otherwise."""
    entries = [{"name": "r", "severity": "warning", "action": "none", "effect": "event", **rule} for rule in written]
    text = json.dumps({"apiVersion": "nodeguard.io/v1", "kind": "RuleSet", "rules": entries})
    return load_rule_texts([("rules.yaml", text)])


class Played:
    """A recording that was played to its end. ``recording``: YAML text, or entries."""

    def __init__(
        self, recording: str | list[dict[str, Any]], ruleset: RuleSet | None = None, *, soak: float = 0.0
    ) -> None:
        self.problems: list[Problem] = []
        if isinstance(recording, str):
            entries = list(entries_of_yaml(recording, "rec.yaml", self.problems))
        else:
            entries = [Entry(number, 1, entry) for number, entry in enumerate(recording, 1)]
        self.player = Player(shipped() if ruleset is None else ruleset, soak=soak)
        acts = open_recording(entries, "rec.yaml", self.problems)
        self.rows = [transition_row(one) for one in self.player.play(acts)]
        self.final = self.player.final()

    @property
    def told(self) -> list[str]:
        """``at opened rule device`` of every transition."""
        return [f"{row['at']:g} {row['transition']} {row['rule']} {row['device']}" for row in self.rows]

    @property
    def open(self) -> list[str]:
        """``rule device`` of every fault at the end, sorted."""
        return sorted(f"{fault['rule']} {fault['device']}" for fault in self.final["faults"])

    def fault(self, rule: str) -> dict[str, Any]:
        """The open fault of a rule."""
        (found,) = [fault for fault in self.final["faults"] if fault["rule"] == rule]
        return dict(found)

    @property
    def errors(self) -> list[str]:
        """Every mistake of the recording."""
        return [str(problem) for problem in self.problems]


def gpus(**readings: object) -> dict[str, object]:
    return {"gpus": {name.replace("_", "-"): {"index": 0, **dict(value)} for name, value in readings.items()}}  # type: ignore[call-overload]
