"""How many nodes may be out of service: a ledger of slots, which is kept on the leader's Lease.

A slot is taken by compare-and-swap before a node is touched, so a leader that was paused and replaced meanwhile
cannot take one. Pure: ledgers are JSON objects in and out, times are Unix seconds.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from nodeguard.kube.api import Object
from nodeguard.model.policy import Budget, Storm
from nodeguard.remediation.views import NodeView

VERSION = 1
_LONGEST_MEMORY = 86_400.0


def empty() -> Object:
    """A ledger without entries."""
    return {"v": VERSION, "slots": {}, "begun": [], "storm": 0.0}


def readable(ledger: Object | None) -> Object:
    """The ledger, or an empty one in the place of what is none of ours."""
    if ledger is None or ledger.get("v") != VERSION or not isinstance(ledger.get("slots"), dict):
        return empty()
    return {**empty(), **ledger}


def slots(ledger: Object) -> Mapping[str, Any]:
    """Node name → its slot."""
    return readable(ledger)["slots"]  # type: ignore[no-any-return] # JSON


def storm_until(ledger: Object) -> float:
    """Until when a storm holds everything."""
    return float(readable(ledger)["storm"])


def pool_of(node: NodeView, budget: Budget) -> str:
    """The node's pool; the empty name where pools are not told apart or the label is missing."""
    return node.labels.get(budget.pool_label, "") if budget.pool_label is not None else ""


def limit(nodes: int, budget: Budget) -> int:
    """Slots of a pool with so many accelerator nodes: rounded down, never below one while it has a node."""
    return 0 if nodes == 0 else max(1, int(nodes * budget.max_unavailable_percent / 100))


def refusal(ledger: Object, node: NodeView, sizes: Mapping[str, int], budget: Budget, now: float) -> str:
    """Why the node gets no slot now; empty: it gets one. ``sizes``: accelerator nodes by pool."""
    ledger = readable(ledger)
    pool = pool_of(node, budget)
    used = sum(1 for slot in ledger["slots"].values() if slot.get("pool", "") == pool)
    allowed = limit(sizes.get(pool, 0), budget)
    if used >= allowed:
        return f"budget: {used} of {allowed} nodes are out of service already"
    begun = len(_begun_since(ledger, now - budget.window))
    if begun >= budget.max_nodes:
        return f"budget: {begun} nodes were begun within {budget.window:g} s"
    return ""


def taken(ledger: Object, node: NodeView, incident: str, budget: Budget, now: float) -> Object:
    """The ledger with a slot for the node."""
    ledger = copy.deepcopy(readable(ledger))
    keep = max(budget.window, 0.0)
    ledger["begun"] = [*_begun_since(ledger, now - min(keep, _LONGEST_MEMORY)), [round(now, 3), node.name]]
    ledger["slots"][node.name] = {
        "uid": node.uid, "incident": incident, "since": round(now, 3), "pool": pool_of(node, budget)}
    return ledger


def freed(ledger: Object, names: Iterable[str]) -> Object | None:
    """The ledger without these nodes' slots; None: they have none."""
    ledger = copy.deepcopy(readable(ledger))
    found = [name for name in names if ledger["slots"].pop(name, None) is not None]
    return ledger if found else None


def storming(ledger: Object, until: float) -> Object:
    """The ledger with a storm until then."""
    return {**copy.deepcopy(readable(ledger)), "storm": round(until, 3)}


def storm_size(nodes: int, storm: Storm) -> int:
    """So many nodes newly at fault are a storm."""
    return max(storm.at_least, int(nodes * storm.percent / 100))


def next_slot(ledger: Object, budget: Budget, now: float) -> float | None:
    """When time alone frees the window for another node; None: time alone does not."""
    begun = _begun_since(readable(ledger), now - budget.window)
    return begun[-budget.max_nodes][0] + budget.window if len(begun) >= budget.max_nodes > 0 else None


def _begun_since(ledger: Object, since: float) -> list[Any]:
    return [entry for entry in ledger["begun"] if entry[0] > since]
