"""What the loop tells of its work, for the log and the metrics page."""

from collections import Counter
from collections.abc import Iterable, Mapping

from nodeguard.model.sample import Labels
from nodeguard.remediation import record
from nodeguard.remediation.happenings import Happening
from nodeguard.remediation.views import NodeView
from nodeguard.sinks.log import Log

_GRAVE = frozenset({"storm", "braked"})
_POOR = frozenset({"failed", "held", "waits", "doubt", "unknown-kind"})
_MOST_PODS = 8


class LoopNews:
    """Logs every happening and counts it. Called on the loop's own thread; never blocks."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._told: Counter[str] = Counter()
        self._evicted = 0

    def tell(self, happening: Happening) -> None:
        """Take one."""
        self._told[happening.what] += 1
        if happening.what == "evicted":
            self._evicted += len(happening.pods)
        level = "error" if happening.what in _GRAVE else "warning" if happening.what in _POOR else "info"
        getattr(self._log, level)(happening.what, **_fields(happening))

    def counters(self) -> Mapping[tuple[str, Labels], float]:
        """What happened since the start, for the metrics page. From any thread."""
        told: dict[tuple[str, Labels], float] = {
            ("remediation_happenings_total", (("what", what),)): float(count)
            for what, count in tuple(self._told.items())}
        return {**told, ("remediation_evictions_total", ()): float(self._evicted)}


def _fields(happening: Happening) -> dict[str, object]:
    found: dict[str, object] = {
        "node": happening.node.name if happening.node is not None else "", "incident": happening.incident,
        "state": happening.record.state if happening.record is not None else "",
        "rules": list(happening.record.rules) if happening.record is not None else [],
        "owner": happening.owner.title if happening.owner is not None else "",
        "pods": [pod.key for pod in happening.pods[:_MOST_PODS]], "count": happening.count,
        "message": happening.text, "policy_hash": happening.policy}
    return {name: value for name, value in found.items() if value}


def nodes_by_state(nodes: Iterable[NodeView]) -> Mapping[tuple[str, Labels], float]:
    """How many Nodes the loop has in each state, none left out, for the metrics page."""
    found = Counter(dict.fromkeys(record.STATES, 0))
    for node in nodes:
        if node.record is not None:
            found[_state(node.record)] += 1
    return {("remediation_nodes", (("state", state),)): float(count) for state, count in found.items()}


def _state(text: str) -> str:
    try:
        standing = record.parse(text)
    except (ValueError, RecursionError):
        return "unreadable"
    return "" if standing is None else standing.state
