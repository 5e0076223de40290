"""What the engine remembers: the two parts that the store keeps, and the way back from them.

The node part outlives a boot: faults that only a replacement or a person ends, states once seen, the inventory,
counters that the device keeps itself, the rules last in force. The boot part is everything else.
"""

from collections.abc import Mapping
from typing import Any

from nodeguard.engine.cures import OUTLIVES_BOOT
from nodeguard.engine.engine import Engine
from nodeguard.engine.faults import Open
from nodeguard.engine.judges import RESTORED
from nodeguard.engine.series import labels_of
from nodeguard.model.device import KINDS, Device, kind_of
from nodeguard.model.fault import ACTIONS, EFFECTS, SEVERITIES

_SCALES = {"severity": SEVERITIES, "action": ACTIONS, "effect": EFFECTS}


def node_part(engine: Engine) -> dict[str, Any]:
    """What outlives a boot, as JSON."""
    table = engine.series.all.values()
    return {
        "faults": [fault.state() for fault in engine.faults.open.values() if _outlives_boot(engine, fault)],
        "memory": [[series.signal, series.device, [list(pair) for pair in series.labels], series.memory]
                   for series in table if series.memory],
        "lifetime": [series.state() for series in table if series.lifetime],
        "windows": engine.judges.lifetime_state(),
        "inventory": engine.inventory.node_state(),
        "soak": engine.soak.state(),
    }


def boot_part(engine: Engine) -> dict[str, Any]:
    """What ends with the boot, as JSON. Includes every open fault."""
    return {
        "now": engine.now,
        "faults": [fault.state() for fault in engine.faults.open.values()],
        "series": [series.state() for series in engine.series.all.values()],
        "judges": engine.judges.state(),
        "seen": engine.seen.state(),
        "sources": engine.sources.state(),
        "inventory": engine.inventory.boot_state(),
        "counts": dict(engine.counts),
        "event_counts": [[*key, count] for key, count in engine.event_counts.items()],
    }


def _outlives_boot(engine: Engine, fault: Open) -> bool:
    compiled = engine.judges.compiled.get(fault.rule)
    return compiled is not None and compiled.rule.clear.on in OUTLIVES_BOOT


def restore(engine: Engine, node: Mapping[str, Any], boot: Mapping[str, Any] | None, *,  # noqa: PLR0913 # one memory
            boot_id: str, node_uid: str, now: float, shift: float = 0.0) -> None:
    """Put a fresh engine where another one stopped.

    ``boot`` None: the node booted since; ``shift`` seconds turn times of the old boot into this one's.
    Faults come back as they were told; nothing is told again.
    """
    engine.node_uid, engine.sources.boot_id = node_uid, boot_id
    engine.soak.restore(node.get("soak", {}), 0.0 if boot is not None else shift)
    engine.inventory.restore(node.get("inventory", {}), None if boot is None else boot["inventory"])
    _restore_faults(engine, node.get("faults", ()) if boot is None else boot["faults"],
                    shift=0.0 if boot is not None else shift)
    for state in node.get("lifetime", ()) if boot is None else boot["series"]:
        series = engine.meet(state["signal"], Device(state["device"]), labels_of(state), now)
        series.restore(state)
        if boot is None:
            series.reboot()
    for signal, device, labels, memory in node.get("memory", ()):
        engine.meet(signal, Device(device), labels_of({"labels": labels}), now).memory = dict(memory)
    if boot is not None:
        _restore_boot(engine, boot)
        engine.judges.take_over_without_series(now, _orphaned(engine))
    else:
        if "windows" in node:
            engine.judges.restore_series(node["windows"], shift)
        engine.judges.take_over_without_series(now)


def _restore_boot(engine: Engine, boot: Mapping[str, Any]) -> None:
    engine.now = float(boot["now"])
    engine.sources.restore(boot["sources"])
    engine.seen.restore(boot["seen"])
    engine.counts.update({str(name): int(count) for name, count in boot["counts"].items()})
    for signal, device, code, count in boot["event_counts"]:
        engine.event_counts[signal, Device(device), code] = int(count)
    engine.judges.restore(boot["judges"], engine.now)


def _orphaned(engine: Engine) -> set[str]:
    return {fault.rule for fault in engine.faults.open.values() if RESTORED in fault.holders}


def _restore_faults(engine: Engine, states: Any, *, shift: float) -> None:
    for state in states:
        if state["rule"] not in engine.judges.compiled:
            continue
        fault = Open(rule=state["rule"], device=Device(state["device"]), since=float(state["since"]) + shift,
                     last=float(state["last"]) + shift, count=int(state["count"]), evidence=dict(state["evidence"]),
                     key=str(state["key"]), holders=set(state["holders"]), floor=int(state["floor"]),
                     shown=None if state["shown"] is None else _shown(state["shown"]))
        engine.faults.adopt(fault)


def _shown(words: Any) -> tuple[str, str, str, str | None]:
    severity, action, effect, would = words
    return str(severity), str(action), str(effect), None if would is None else str(would)


def restore_annotation(engine: Engine, annotation: Mapping[str, Any], *, boot_id: str, now: float,
                       wall_to_engine: Mapping[str, float]) -> int:
    """Take faults over from the Node's own annotation, when the state file is lost; how many.

    Of another boot's annotation only those that outlive a boot. ``wall_to_engine`` maps its time stamps. Kernel
    records that are read again count up to the annotation's count before they count on.
    """
    taken = 0
    same_boot = annotation.get("boot") == boot_id
    for row in annotation.get("faults", ()):
        fault = _from_row(row, wall_to_engine)
        if fault is None or fault.rule not in engine.judges.compiled:
            continue
        if not same_boot and not _outlives_boot(engine, fault):
            continue
        if row.get("pci") and kind_of(fault.device) == "gpu" and same_boot:
            engine.inventory.restore_slot(str(row["pci"]), fault.device)
        engine.faults.adopt(fault)
        taken += 1
    engine.judges.take_over_without_series(now, _orphaned(engine))
    return taken


def _from_row(row: Mapping[str, Any], wall_to_engine: Mapping[str, float]) -> Open | None:
    if not isinstance(row, Mapping) or not isinstance(row.get("count", 1), int):
        return None
    if not all(row.get(name) in scale for name, scale in _SCALES.items()):
        return None
    rule, device, since = row.get("rule"), row.get("device"), wall_to_engine.get(str(row.get("since")))
    if not isinstance(rule, str) or not isinstance(device, str) or since is None:
        return None
    if kind_of(Device(device)) not in KINDS:
        return None
    count = max(1, row.get("count", 1))
    return Open(rule=rule, device=Device(device), since=since, last=since, count=count, evidence={},
                key=f"annotation@{row.get('since')}", holders={RESTORED}, floor=count,
                shown=(row["severity"], row["action"], row["effect"], None))
