"""Counts who is newly at fault: many nodes within a moment are a storm, many nodes by one rule are a bad rule."""

from collections import Counter
from collections.abc import Iterable

from nodeguard.model.policy import RuleBrake, Storm
from nodeguard.remediation.budget import storm_size
from nodeguard.remediation.report import Fault

_MOST_RULES = 64
"""Rules that one node's annotation is believed to have tainted it lately; whose agent lies fills no memory."""

Rule = tuple[str, str]
"""Name and content hash."""


class Storms:
    """Beginnings of faults by node. Times are Unix seconds. What is too old to count is forgotten when counted."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        """When the newest fault with the effect evict began."""
        self._by_node: dict[str, dict[Rule, float]] = {}
        self._known: dict[str, frozenset[str]] = {}

    def note(self, node: str, faults: Iterable[Fault], now: float) -> None:
        """Take a node's faults that act.

        What stands when the loop looks for the first time began when it says, not now: a loop that begins to lead
        must not take all that it finds for a storm.
        """
        current = {fault.key: fault for fault in faults}
        known = self._known.get(node)
        self._known[node] = frozenset(current)
        for fault in (fault for key, fault in current.items() if key not in (known or ())):
            self._fresh(node, fault, min(fault.since, now) if known is None else now)

    def _fresh(self, node: str, fault: Fault, at: float) -> None:
        rules = self._by_node.setdefault(node, {})
        rule = fault.rule, fault.rule_hash
        if rule in rules or len(rules) < _MOST_RULES:
            rules[rule] = max(at, rules.get(rule, at))
        if fault.evicts:
            self._begun[node] = max(at, self._begun.get(node, at))

    def begin_term(self) -> None:
        """What happened while another replica led is not new."""
        self._known.clear()

    def forget(self, node: str) -> None:
        """The Node is gone; that it fell ill still counts."""
        self._known.pop(node, None)

    def storm(self, policy: Storm, nodes: int, now: float) -> int | None:
        """How many nodes are newly at fault, if they are so many that it is a storm."""
        self._begun = {node: at for node, at in self._begun.items() if at > now - policy.within}
        newly = len(self._begun)
        return newly if nodes and newly >= storm_size(nodes, policy) else None

    def bad_rules(self, policy: RuleBrake, nodes: int, now: float) -> dict[Rule, int]:
        """Rules, with their content hash, that tainted more nodes than one rule may → how many."""
        most = max(policy.at_least, int(nodes * policy.percent / 100))
        counts: Counter[Rule] = Counter()
        for node, rules in tuple(self._by_node.items()):
            for rule in [rule for rule, at in rules.items() if at <= now - policy.within]:
                del rules[rule]
            if not rules:
                del self._by_node[node]
            counts.update(rules.keys())
        return {rule: count for rule, count in counts.items() if count > most}
