"""The agent's memory over restarts: engine, kernel log and untold Events in one snapshot, or the Node's annotation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nodeguard.engine import memory
from nodeguard.engine.engine import Engine
from nodeguard.kube.api import Object
from nodeguard.model.clock import Clock
from nodeguard.model.errors import StoreError
from nodeguard.model.intent import FAULTS_ANNOTATION
from nodeguard.sinks import annotation
from nodeguard.store import Loaded, Store

_WALL_AT_BOOT = "wall_at_boot"
"""Unix time of engine time 0: turns times of one boot into another's."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was brought back beside the engine's memory."""

    engine: Engine
    kernel_log: Mapping[str, Any] | None = None
    """None: nothing of this boot, so the kernel log is read from its oldest record."""
    events: Mapping[str, Any] = field(default_factory=dict)
    needs_node: bool = False
    """Nothing is known and the Node could not be asked: what stands on it must be taken over before it is written."""


class Remember:
    """Saves and brings back. Not thread-safe: only the agent's loop uses it."""

    def __init__(self, store: Store, clock: Clock, boot_id: str, note: Callable[[str], None]) -> None:
        """``note`` takes one sentence for people."""
        self._store, self._clock, self._boot_id, self._note = store, clock, boot_id, note

    def restore(self, fresh: Callable[[], Engine], node: Object | None) -> Restored:
        """A ``fresh`` engine, put where the last agent on this node stopped.

        ``node`` is the Node as it stands, where the API server could be asked: its annotation serves when the
        state file is lost.
        """
        uid = str(((node or {}).get("metadata") or {}).get("uid", ""))
        loaded = self._store.load(uid, self._boot_id)
        try:
            restored = self._from_store(fresh(), loaded, uid)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # whole, and yet not what this version writes: a stranger's file must not keep the agent from starting
            note = self._store.set_aside("torn", f"its content is not understood ({type(error).__name__}: {error})")
            loaded = Loaded(notes=(*loaded.notes, note))
            restored = self._from_store(fresh(), loaded, uid)
        for note in loaded.notes:
            self._note(note)
        if loaded.node:
            return restored
        if node is not None:
            self.restore_annotation(restored.engine, node)
        return Restored(restored.engine, restored.kernel_log, restored.events, needs_node=node is None)

    def _from_store(self, engine: Engine, loaded: Loaded, uid: str) -> Restored:
        shift = 0.0
        if loaded.node and loaded.boot is None:
            stored = loaded.node.get(_WALL_AT_BOOT)
            shift = stored - self._wall_at_boot() if isinstance(stored, int | float) else 0.0
        kept: Any = None if loaded.boot is None else loaded.boot["engine"]
        memory.restore(engine, loaded.node, kept, boot_id=self._boot_id, node_uid=uid or loaded.node_uid,
                       now=self._clock.boot(), shift=shift)
        # what was printed since the last save is not judged yet: until it is, what stands on the Node stays
        engine.sources.reboot()
        events = _mapping((loaded.node or {}).get("events")) or {}
        return Restored(engine, None if loaded.boot is None else _mapping(loaded.boot["kmsg"]), events)

    def restore_annotation(self, engine: Engine, node: Object) -> None:
        """Take over what the Node says is broken, and the engine does not know."""
        annotations = (node.get("metadata") or {}).get("annotations") or {}
        document = annotation.parse(annotations.get(FAULTS_ANNOTATION))
        if document is None:
            return
        known = {(fault.rule, fault.device) for fault in engine.open_faults()}
        rows = [row for row in annotation.faults_of(document) if (row.get("rule"), row.get("device")) not in known]
        times = {}
        for row in rows:
            moment = _unix(row.get("since"))
            if moment is not None:
                times[str(row["since"])] = moment - self._wall_at_boot()
        taken = memory.restore_annotation(engine, {**document, "faults": rows}, boot_id=self._boot_id,
                                          now=self._clock.boot(), wall_to_engine=times)
        if taken:
            self._note(f"{taken} open faults were taken over from the Node's annotation")

    def save(self, engine: Engine, kernel_log: Mapping[str, object], events: Mapping[str, object]) -> None:
        """Keep everything on disk. StoreError when that fails."""
        node = {**memory.node_part(engine), _WALL_AT_BOOT: round(self._wall_at_boot(), 1), "events": events}
        boot = {"engine": memory.boot_part(engine), "kmsg": kernel_log}
        self._store.save(engine.node_uid, self._boot_id, node, boot)

    def try_save(self, engine: Engine, kernel_log: Mapping[str, object], events: Mapping[str, object]) -> str | None:
        """Save; why not, if it failed."""
        try:
            self.save(engine, kernel_log, events)
        except StoreError as error:
            return str(error)
        return None

    def _wall_at_boot(self) -> float:
        return self._clock.wall() - self._clock.boot()


def _mapping(value: object) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None


def _unix(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None
