"""Counts who is newly at fault: many nodes within a moment are a storm, many nodes by one rule are a bad rule."""

from collections import deque
from collections.abc import Iterable

from nodeguard.model.policy import RuleBrake, Storm
from nodeguard.remediation.budget import storm_size
from nodeguard.remediation.report import Fault

_MOST = 20_000


class Storms:
    """Beginnings of faults by node. Times are Unix seconds."""

    def __init__(self) -> None:
        self._begun: deque[tuple[float, str]] = deque(maxlen=_MOST)
        self._by_rule: dict[tuple[str, str], dict[str, float]] = {}
        self._known: dict[str, frozenset[str]] = {}

    def note(self, node: str, faults: Iterable[Fault], now: float, *, first_sight: bool) -> None:
        """Take a node's faults that act.

        ``first_sight``: the loop has only just begun to look, so a fault began when it says, not now.
        """
        current = {fault.key: fault for fault in faults}
        fresh = [fault for key, fault in current.items() if key not in self._known.get(node, frozenset())]
        self._known[node] = frozenset(current)
        for fault in fresh:
            at = min(fault.since, now) if first_sight else now
            self._by_rule.setdefault((fault.rule, fault.rule_hash), {})[node] = at
            if fault.evicts:
                self._begun.append((at, node))

    def forget(self, node: str) -> None:
        """The Node is gone."""
        self._known.pop(node, None)

    def storm(self, policy: Storm, nodes: int, now: float) -> int | None:
        """How many nodes are newly at fault, if they are so many that it is a storm."""
        newly = {node for at, node in self._begun if at > now - policy.within}
        return len(newly) if nodes and len(newly) >= storm_size(nodes, policy) else None

    def bad_rules(self, policy: RuleBrake, nodes: int, now: float) -> dict[tuple[str, str], int]:
        """Rules, with their content hash, that tainted more nodes than one rule may → how many."""
        most = max(policy.at_least, int(nodes * policy.percent / 100))
        found = {}
        for rule, by_node in self._by_rule.items():
            recent = sum(1 for at in by_node.values() if at > now - policy.within)
            if recent > most:
                found[rule] = recent
        return found
