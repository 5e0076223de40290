"""Facts: devices that become known, vanish or return, sources that go blind, and the evidence that cures faults."""

from typing import TYPE_CHECKING

from nodeguard.engine.faults import Open
from nodeguard.engine.occurrences import SeenElsewhere
from nodeguard.engine.series import Series
from nodeguard.engine.timed import StallTracker
from nodeguard.model.device import NODE, Device, is_within
from nodeguard.model.fault import EVIDENCE
from nodeguard.model.sample import (
    Affinity,
    Booted,
    Event,
    Expected,
    Fact,
    Gap,
    Identified,
    KindsHere,
    Missed,
    NodeIs,
    PersonCleared,
    Pods,
    Present,
    Renamed,
    Repaired,
    SourceState,
    Stalled,
)

if TYPE_CHECKING:
    from nodeguard.engine.engine import Engine

OUTLIVES_BOOT = ("replace", "never")
"""``clear.on`` of faults that no reboot ends."""

_EVIDENCE_OF_ACTION = {"reset_gpu": "reset", "reboot_node": "reboot", "replace_hw": "replace"}


class Cures:
    """Applies facts to an engine."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    def fact(self, now: float, source: str, fact: Fact) -> None:  # noqa: C901, PLR0912 # one arm a fact
        """Apply one fact that ``source`` told."""
        engine = self._engine
        match fact:
            case Identified(pci, device):
                self._identified(now, pci, device)
            case Present(kind, devices):
                self._present(now, source, kind, devices)
            case Missed(devices):
                for series in list(engine.series.of_source(source, devices)):
                    engine.missed(series, source)
            case SourceState():
                self._source_state(now, source, fact)
            case Stalled(device, since):
                self._stalled(now, source, device, since)
            case Gap(lost):
                engine.counts["kmsg_gaps_total"] += 1 if lost else 0
            case Repaired(device, action):
                if action in _EVIDENCE_OF_ACTION:
                    where = None if device == NODE else engine.inventory.resolve(device)
                    self.cure(_EVIDENCE_OF_ACTION[action], where, now, f"repaired: {action}")
            case Pods(by_device):
                engine.inventory.pods = {engine.inventory.resolve(one): pods for one, pods in by_device.items()}
            case Affinity(near):
                engine.inventory.near = near
            case PersonCleared(rule, target, before):
                self._person_cleared(now, rule, target, before)
            case Expected(devices, counts):
                engine.inventory.expected = devices
                engine.inventory.counts = dict(counts)
            case NodeIs(_, uid):
                self._node_is(now, uid)
            case Booted(boot_id, at):
                self._booted(now, boot_id, at)
            case Renamed(old, new):
                self._renamed(now, old, new)
            case KindsHere(kinds):
                engine.inventory.kinds |= kinds

    def cure(self, kind: str, device: Device | None, now: float, detail: str, *, same_step: bool = True) -> None:
        """Close what this evidence proves cured; ``device`` None: on the whole node.

        ``same_step`` False: what was told in this very step is later than the evidence.
        """
        strength = EVIDENCE.index(kind)
        for fault in list(self._engine.faults.open.values()):
            on = self._clears_on(fault)
            if on is None or on == "never" or EVIDENCE.index(on) > strength:
                continue
            if device is not None and not is_within(fault.device, device):
                continue
            if same_step or fault.touched < self._engine.faults.step:
                self._end(fault, now, detail)

    def _clears_on(self, fault: Open) -> str | None:
        compiled = self._engine.judges.compiled.get(fault.rule)
        return None if compiled is None else compiled.rule.clear.on

    def _end(self, fault: Open, now: float, detail: str) -> None:
        self._engine.judges.ended(fault)
        self._engine.faults.close(fault, now, detail)

    def _identified(self, now: float, pci: str, device: Device) -> None:
        engine = self._engine
        before = engine.inventory.identify(pci, device)
        slot_name = Device(f"gpu/{pci}")
        if before is not None and before != device:
            self._replaced(now, before, device)
            self._replaced(now, slot_name, device)
        engine.faults.rekey(slot_name, device, now)
        self._move_series(now, slot_name, device)
        engine.judges.rename(slot_name, device)
        engine.seen.rename(slot_name, device)

    def _replaced(self, now: float, old: Device, new: Device) -> None:
        self.cure("replace", old, now, f"{new} holds its slot now")
        self._forget(old)

    def _forget(self, device: Device) -> None:
        """Nothing that was read of a device counts any more."""
        for series in [one for one in self._engine.series.all.values() if is_within(one.device, device)]:
            self._drop(series)
        self._engine.judges.forget(lambda other: not is_within(other, device))

    def _move_series(self, now: float, old: Device, new: Device) -> None:
        engine = self._engine
        moving = [series for series in engine.series.all.values() if is_within(series.device, old)]
        if not moving:
            return
        state = engine.judges.series_state(lambda series, _tracker: is_within(series.device, old))
        for series in moving:
            engine.series.drop(series)
            series.device = Device(new + series.device.removeprefix(old))
            if engine.series.get(*series.key) is None:
                engine.series.add(series)
                engine.judges.meet(series, now)
            else:
                engine.judges.drop(series)
        for entry in state["series"]:
            entry[2] = new + entry[2].removeprefix(old)
        engine.judges.restore_series(state)

    def _present(self, now: float, source: str, kind: str, devices: frozenset[Device]) -> None:
        engine = self._engine
        grace = engine.sources.in_boot_grace(now)
        for device in engine.inventory.present(devices, kind, grace=grace):
            if kind == "gpu":
                engine.take_event(now, source, Event("gpu_lost", device, {"cause": "missing"}))
            for series in [one for one in engine.series.all.values() if is_within(one.device, device)]:
                series.value = None
                for tracker in series.trackers:
                    tracker.aged_out()
            engine.judges.leave(device)

    def _source_state(self, now: float, source: str, told: SourceState) -> None:
        engine = self._engine
        engine.sources.set_state(source, up=told.up, caught_up=told.caught_up)
        series = engine.meet("source_up", NODE, (("source", source),), now)
        if told.deliberate and not told.up:
            series.value = None
            for tracker in series.trackers:
                tracker.aged_out()
            return
        series.known(1 if told.up else 0, "agent")
        for tracker in series.trackers:
            tracker.sample(now, None)

    def _stalled(self, now: float, source: str, device: Device, since: float | None) -> None:
        engine = self._engine
        series = engine.meet("source_stalled_seconds", device, (("source", source),), now)
        if since is not None and device == NODE:
            engine.sources.stalled(source)
        if since is not None and series.stalled_since is not None:
            return  # a source that was restarted meanwhile meets the same silence
        series.stalled_since = since
        for tracker in series.trackers:
            if isinstance(tracker, StallTracker):
                tracker.since = since
        if since is None:
            series.known(0, source)
            for tracker in series.trackers:
                tracker.sample(now, None)

    def _person_cleared(self, now: float, rule: str, target: Device | None, before: float) -> None:
        device = None if target is None else self._engine.inventory.resolve(target)
        for fault in list(self._engine.faults.open.values()):
            if fault.rule == rule and fault.last < before and device in (None, fault.device):
                self._end(fault, now, "a person cleared it")

    def _node_is(self, now: float, uid: str) -> None:
        engine = self._engine
        if engine.node_uid and uid and uid != engine.node_uid:
            for fault in list(engine.faults.open.values()):
                self._end(fault, now, "the Node was replaced")
            for series in list(engine.series.all.values()):
                self._drop(series)
            engine.judges.forget(lambda _device: False)
            engine.inventory.reboot()
            engine.inventory.stored.clear()
        engine.node_uid = uid or engine.node_uid

    def _booted(self, now: float, boot_id: str, at: float | None) -> None:
        engine = self._engine
        known = engine.sources.boot_id
        if known != boot_id or at is not None:
            engine.sources.boot_at = float("-inf") if at is None else at
        if known == boot_id:
            return
        engine.sources.boot_id = boot_id
        if known:
            self._end_boot(now)
        for series in engine.series.all.values() if not known else ():
            series.memory = dict.fromkeys(series.memory, boot_id)

    def _end_boot(self, now: float) -> None:
        engine = self._engine
        self.cure("reboot", None, now, "the node rebooted")
        for fault in list(engine.faults.open.values()):
            if self._clears_on(fault) not in OUTLIVES_BOOT:
                self._end(fault, now, "the node rebooted: judged anew")
        engine.sources.reboot()
        engine.inventory.reboot()
        engine.seen = SeenElsewhere()
        for series in list(engine.series.all.values()):
            if series.memory or series.lifetime:
                series.reboot()
                for tracker in series.trackers:
                    tracker.aged_out()
            else:
                self._drop(series)
        engine.judges.forget(lambda _device: False)
        engine.judges.take_over_without_series(now)

    def _drop(self, series: Series) -> None:
        self._engine.series.drop(series)
        self._engine.judges.drop(series)

    def _renamed(self, now: float, old: Device, new: Device) -> None:
        engine = self._engine
        for fault in [fault for fault in engine.faults.open.values() if is_within(fault.device, old)]:
            self._end(fault, now, f"renamed: it is {new} now")
        self._forget(old)
        engine.inventory.seen.discard(old)
