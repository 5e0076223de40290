"""Soak: a rule that a change of the configuration altered may not taint for a while."""

import hashlib
from collections.abc import Mapping
from typing import Any

from nodeguard.model.rule import Bare, Count, Rule, RuleSet


def judging_hashes(rules: RuleSet) -> dict[str, str]:
    """The judging hash of every rule that soak applies to: event rules are exempt."""
    return {rule.name: rule.judging_hash for rule in rules.rules if applies_to(rule)}


def applies_to(rule: Rule) -> bool:
    """Whether the rule judges levels or counters (``left`` and ``absent`` included)."""
    return not isinstance(rule.test, Bare | Count)


class Soak:
    """Which rules soak, and until when.

    The end is spread over a second period by the node's name, so that one bad number that a whole cluster took
    in at the same moment does not taint all of it at the same moment either.
    """

    def __init__(self, seconds: float, node_name: str) -> None:
        self.seconds = seconds
        self._share = int(hashlib.sha256(node_name.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
        self._in_force: dict[str, str] | None = None
        self.until: dict[str, float] = {}

    def enforce(self, rules: RuleSet, now: float, baseline: Mapping[str, str] | None = None) -> None:
        """These rules are in force from now on. ``baseline``: what counts as known when nothing was in force before."""
        hashes = judging_hashes(rules)
        known = self._in_force if self._in_force is not None else (hashes if baseline is None else baseline)
        self.until = {name: end for name, end in self.until.items() if name in hashes}
        if self.seconds > 0:
            for name, value in hashes.items():
                if known.get(name) != value:
                    self.until[name] = now + self.seconds * (1 + self._share)
        self._in_force = hashes

    def soaking(self, name: str) -> bool:
        """Whether the rule's effect is held back now."""
        return name in self.until

    def due(self) -> float | None:
        """When the next rule's soak ends."""
        return min(self.until.values(), default=None)

    def expire(self, now: float) -> None:
        """End every soak that is due."""
        self.until = {name: end for name, end in self.until.items() if end > now}

    def state(self) -> dict[str, Any]:
        """For the store."""
        return {"in_force": self._in_force, "until": self.until}

    def restore(self, state: Mapping[str, Any], shift: float) -> None:
        """Take back what :meth:`state` gave; ``shift`` turns its times into this boot's."""
        in_force = state.get("in_force")
        self._in_force = None if in_force is None else {str(name): str(value) for name, value in in_force.items()}
        self.until = {str(name): float(end) + shift for name, end in state.get("until", {}).items()}
