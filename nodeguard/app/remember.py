"""The agent's memory over restarts: engine and kernel log in one snapshot, or the Node's own annotation."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from nodeguard.engine import memory
from nodeguard.engine.engine import Engine
from nodeguard.kube.api import Object
from nodeguard.model.clock import Clock
from nodeguard.model.errors import StoreError
from nodeguard.model.intent import FAULTS_ANNOTATION
from nodeguard.sinks import annotation
from nodeguard.store import Store

_WALL_AT_BOOT = "wall_at_boot"
"""Unix time of engine time 0: turns times of one boot into another's."""


class Remember:
    """Saves and brings back. Not thread-safe: only the agent's loop uses it."""

    def __init__(self, store: Store, clock: Clock, boot_id: str, note: Callable[[str], None]) -> None:
        """``note`` takes one sentence for people."""
        self._store, self._clock, self._boot_id, self._note = store, clock, boot_id, note

    def restore(self, engine: Engine, node: Object | None) -> Mapping[str, object] | None:
        """Put the engine where the last agent on this node stopped; the kernel log's state, if it is of this boot.

        ``node`` is the Node as it stands, where the API server could be asked: its annotation serves when the
        state file is lost.
        """
        now = self._clock.boot()
        uid = str(((node or {}).get("metadata") or {}).get("uid", ""))
        loaded = self._store.load(uid, self._boot_id)
        for note in loaded.notes:
            self._note(note)
        shift = 0.0
        if loaded.node and loaded.boot is None:
            stored = loaded.node.get(_WALL_AT_BOOT)
            shift = stored - self._wall_at_boot() if isinstance(stored, int | float) else 0.0
        kept = None if loaded.boot is None else _mapping(loaded.boot.get("engine"))
        memory.restore(engine, loaded.node, kept, boot_id=self._boot_id, node_uid=uid or loaded.node_uid, now=now,
                       shift=shift)
        if not loaded.node and node is not None:
            self._restore_annotation(engine, node, now)
        return None if loaded.boot is None else _mapping(loaded.boot.get("kmsg"))

    def _restore_annotation(self, engine: Engine, node: Object, now: float) -> None:
        annotations = (node.get("metadata") or {}).get("annotations") or {}
        document = annotation.parse(annotations.get(FAULTS_ANNOTATION))
        if document is None:
            return
        times = {}
        for row in annotation.faults_of(document):
            moment = _unix(row.get("since"))
            if moment is not None:
                times[str(row["since"])] = moment - self._wall_at_boot()
        taken = memory.restore_annotation(engine, document, boot_id=self._boot_id, now=now, wall_to_engine=times)
        if taken:
            self._note(f"{taken} open faults were taken over from the Node's annotation")

    def save(self, engine: Engine, kernel_log: Mapping[str, object]) -> None:
        """Keep everything on disk. StoreError when that fails."""
        node = {**memory.node_part(engine), _WALL_AT_BOOT: round(self._wall_at_boot(), 1)}
        boot = {"engine": memory.boot_part(engine), "kmsg": kernel_log}
        self._store.save(engine.node_uid, self._boot_id, node, boot)

    def _wall_at_boot(self) -> float:
        return self._clock.wall() - self._clock.boot()


def _mapping(value: object) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None


def _unix(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def try_save(remember: Remember, engine: Engine, kernel_log: Mapping[str, Any]) -> str | None:
    """Save; why not, if it failed."""
    try:
        remember.save(engine, kernel_log)
    except StoreError as error:
        return str(error)
    return None
