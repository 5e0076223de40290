"""Writes a recording: every Batch as the raw entry that gives it again, or, where none does exactly, as it is.

The writer reads what it writes, with the reader that a replay uses. Where the reader makes something else of the raw
entry than the source did, the entry says with ``told`` what that was: a replay is exact whatever the sources become.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeguard.model.sample import Batch, Event, SourceState
from nodeguard.sources.kmsg_format import as_bytes, with_header
from nodeguard.sources.recording import told
from nodeguard.sources.recording.answers import Answer, patch_for
from nodeguard.sources.recording.inverse import Inverse
from nodeguard.sources.recording.reader import Entry, Recording
from nodeguard.sources.recording.readers import Readers


@dataclass(frozen=True, slots=True)
class Raw:
    """What a source read before it made a Batch of it; at most one kind of it is there."""

    lines: tuple[bytes, ...] = ()
    """Reads of the kernel log."""
    overruns: int = 0
    """How often it said that records were overwritten."""
    began: float | None = None
    """Engine time at which a poll of ``/sys`` began."""
    answers: tuple[Answer, ...] = ()
    """What it was answered."""
    exporter: Mapping[str, str] = field(default_factory=dict)
    """Name and page, or name and error."""


NOTHING = Raw()


class Writer:
    """Turns batches into lines. Not for several threads."""

    def __init__(self, readers: Readers, write: Callable[[str], None]) -> None:
        """``write`` takes one line, with its end."""
        self._write = write
        self._problems: list[Any] = []
        self._reader = Recording("", self._problems, readers)
        self._inverse = Inverse()
        self._plain: set[str] = set()
        """Sources whose raw entries the reader does not understand."""

    def entry(self, at: float, key: str, value: Any) -> None:
        """Write an entry that is no Batch."""
        entry = {"at": at, key: value}
        self._read(entry)
        self._put(entry)

    def batch(self, at: float, batch: Batch, raw: Raw = NOTHING) -> None:
        """Write what a source told at engine time ``at``, and what it had read."""
        if raw.lines and any(isinstance(fact, SourceState) for fact in batch.facts):
            # lines that told nothing, before the log said something of itself
            self.batch(at, Batch(source=batch.source), raw)
            raw = NOTHING
        entry: dict[str, Any] = {"at": at, **self._raw(batch, raw)}
        if len(entry) == 1 or not self._is_exact(entry, batch):
            entry = {"at": at} if batch.source in self._plain else entry
            entry["told"] = told.encode(batch)
            self._read({"at": at, "told": entry["told"]})
        self._put(entry)

    def _is_exact(self, entry: Mapping[str, Any], batch: Batch) -> bool:
        read = self._read(entry)
        if self._problems:
            # whatever the reader now remembers of this source, it will not be asked again
            self._plain.add(batch.source)
        return not self._problems and _same(read, batch)

    def end(self, at: float) -> None:
        """Write up to when was recorded."""
        self._put({"until": at})

    def _raw(self, batch: Batch, raw: Raw) -> dict[str, Any]:
        if batch.source in self._plain:
            return {}
        if raw.exporter:
            return {"exporter": dict(raw.exporter)}
        if raw.began is not None:
            patch = patch_for(raw.answers, self._reader.tree)
            return {"sysfs": patch, "of": batch.source, "began": raw.began}
        if raw.lines or raw.overruns:
            return _kernel(batch, raw)
        return self._inverse.entry_of(batch)

    def _read(self, entry: Mapping[str, Any]) -> list[Batch]:
        """What a replay will make of an entry."""
        self._problems.clear()
        acts = self._reader.acts([Entry(0, 0, json.loads(json.dumps(entry)))])
        return [act.what for act in acts if isinstance(act.what, Batch)]

    def _put(self, entry: Mapping[str, Any]) -> None:
        self._write(json.dumps(entry, separators=(",", ":"), allow_nan=False) + "\n")


def _kernel(batch: Batch, raw: Raw) -> dict[str, Any]:
    entry: dict[str, Any] = {"kmsg_error": "EPIPE"} if raw.overruns else {}
    lines = [_line(line) for line in raw.lines]
    entry["kmsg"] = lines[0] if len(lines) == 1 else lines
    events = (*batch.events, *(event for part in batch.then for event in part.events))
    happened = {event.key: event.at for event in events if event.at is not None}
    return {**entry, "happened": happened} if happened else entry


def _line(raw: bytes) -> str | dict[str, str]:
    text = raw.decode("utf-8", "backslashreplace")
    return text if with_header(text, 0, 0.0) == as_bytes(text) else {"raw": text}


def _same(read: list[Batch], batch: Batch) -> bool:
    telling = [one for one in read if _tells(one)]
    if not _tells(batch):
        return not telling
    return len(telling) == 1 and _content(telling[0]) == _content(batch)


def _tells(batch: Batch) -> bool:
    return bool(batch.samples or batch.events or batch.facts or batch.then or batch.complete)


def _content(batch: Batch) -> tuple[object, ...]:
    """All that the engine judges by. Attributes are compared as plain dictionaries."""
    parts = [(part.samples, tuple(map(_event, part.events)), part.facts) for part in batch.then]
    return (batch.source, batch.samples, tuple(map(_event, batch.events)), batch.facts, parts, batch.complete)


def _event(event: Event) -> tuple[object, ...]:
    return (*event[:2], dict(event.attributes), *event[3:])
