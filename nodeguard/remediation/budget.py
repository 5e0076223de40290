"""How many nodes may be out of service: a ledger of slots, which is kept on the leader's Lease.

A slot is taken by compare-and-swap before a node is touched, so a leader that was paused and replaced meanwhile
cannot take one. Pure: ledgers are JSON objects in and out, times are Unix seconds.
"""

import copy
from collections.abc import Mapping
from typing import Any

from nodeguard.kube.api import Object
from nodeguard.model.policy import Budget, Storm
from nodeguard.remediation.views import NodeView

VERSION = 1
_LONGEST_MEMORY = 86_400.0
_NO_TIME = 1e11
"""Seconds; what a person wrote into the ledger by mistake counts as no time."""


def empty() -> Object:
    """A ledger without entries."""
    return {"v": VERSION, "slots": {}, "begun": [], "storm": 0.0}


def readable(ledger: Object | None) -> Object:
    """The ledger, or an empty one in the place of what is none of ours; entries of a wrong shape are left out."""
    if ledger is None or ledger.get("v") != VERSION or not isinstance(ledger.get("slots"), dict):
        return empty()
    begun, storm = ledger.get("begun"), ledger.get("storm")
    return {**ledger, "slots": {name: slot for name, slot in ledger["slots"].items() if isinstance(slot, dict)},
            "begun": [one for one in begun if _is_beginning(one)] if isinstance(begun, list) else [],
            "storm": storm if _is_time(storm) else 0.0}


def _is_beginning(entry: object) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and _is_time(entry[0])


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < _NO_TIME


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
    # a slot taken while pools were told apart in another way may be of any of today's
    used = sum(1 for name, slot in ledger["slots"].items() if name != node.name and (
        slot.get("pool", "") == pool or slot.get("label") != budget.pool_label))
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
        "uid": node.uid, "incident": incident, "since": round(now, 3), "pool": pool_of(node, budget),
        "label": budget.pool_label}
    return ledger


def has_slot(ledger: Object, name: str, uid: str) -> bool:
    """Whether this very Node has one, not another of the same name before it."""
    slot = slots(ledger).get(name)
    return slot is not None and slot.get("uid", uid) == uid


def freed(ledger: Object, name: str, uid: str) -> Object | None:
    """The ledger without this very Node's slot; None: it has none."""
    if not has_slot(ledger, name, uid):
        return None
    ledger = copy.deepcopy(readable(ledger))
    del ledger["slots"][name]
    return ledger


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
