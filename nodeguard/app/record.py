"""Writes a recording of what an agent reads, in the order in which its engine takes it.

A replay of the file makes the transitions that the agent made. Times are engine time: seconds since boot.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from nodeguard import __version__
from nodeguard.app.readers import readers
from nodeguard.app.taps import Emit, Taps
from nodeguard.config.settings import AgentSettings
from nodeguard.engine import memory
from nodeguard.engine.engine import Engine
from nodeguard.model.errors import UserError
from nodeguard.model.sample import Batch, Missed, SourceState, Stalled
from nodeguard.sources.kmsg_device import KmsgDevice
from nodeguard.sources.kmsg_records import SOURCE as KMSG
from nodeguard.sources.polled import Poll
from nodeguard.sources.recording.answers import NotingPoll, NotingTree
from nodeguard.sources.recording.readers import SourcePages
from nodeguard.sources.recording.taps import NotingDevice, NotingPages
from nodeguard.sources.recording.tree import PROC, RecordedTree
from nodeguard.sources.recording.writer import NOTHING, Raw, Writer
from nodeguard.sources.tree import Tree

DEFAULT_LIMIT = 256 << 20
"""Bytes. An hour of a node with 8 GPUs and its network is some 20 MB."""


class Recorder(Taps):
    """Taps that write a recording. The file is whole at any moment but for its last line."""

    def __init__(self, path: Path, *, limit: int = DEFAULT_LIMIT,
                 note: Callable[[str], object] = lambda _text: None) -> None:
        """``limit`` in bytes: the recording ends there. ``note`` is told of it. UserError: the file cannot be made.

        A file that is there is kept under its name with ``.old``: an agent that crashed is started again.
        """
        self._path, self._limit, self._note = path, limit, note
        if path.suffix not in (".jsonl", ".ndjson"):
            raise UserError(f"a recording is written as JSON Lines: call it {path.with_suffix('.jsonl')}, not {path}")
        self._file: IO[str] | None = self._open()
        self._size = 0
        self._writer = Writer(readers(), self._write)
        self._device: NotingDevice | None = None
        self._tree: NotingTree | None = None
        self._on_sys = {poll.name for poll in readers().sysfs(RecordedTree(), True)}
        self._polls: dict[str, NotingPoll] = {}
        self._pages: dict[str, NotingPages] = {}
        self._lock = threading.Lock()
        self._raw: dict[int, tuple[Batch, Raw]] = {}
        """What the sources read for batches that are on their way, by the batch's identity."""

    def _open(self) -> IO[str]:
        try:
            if self._path.is_file() and self._path.stat().st_size:
                self._path.replace(self._path.with_name(f"{self._path.name}.old"))
            return self._path.open("w", encoding="ascii", buffering=1)
        except OSError as error:
            raise UserError(f"cannot write the recording {self._path}: {error.strerror}") from error

    @property
    def ended(self) -> bool:
        """Whether nothing more is written: the limit was reached, or the file cannot be written."""
        return self._file is None

    def device(self, device: KmsgDevice) -> KmsgDevice:
        """See :class:`Taps`."""
        self._device = NotingDevice(device)
        return self._device

    def sys(self, tree: Tree) -> Tree:
        """See :class:`Taps`."""
        self._tree = NotingTree(tree)
        return self._tree

    def proc(self, tree: Tree) -> Tree:
        """See :class:`Taps`."""
        return NotingTree(tree, below=f"{PROC}/", beside=self._tree)

    def poll(self, poll: Poll) -> Poll:
        """See :class:`Taps`."""
        if poll.name not in self._on_sys or self._tree is None:
            return poll
        noting = self._polls[poll.name] = NotingPoll(poll, self._tree)
        return noting

    def pages(self, pages: SourcePages, name: str) -> SourcePages:
        """See :class:`Taps`."""
        noting = NotingPages(pages, name)
        self._pages[pages.source] = noting
        return noting

    def passing(self, emit: Emit) -> Emit:
        """See :class:`Taps`."""
        def note_and_emit(batch: Batch) -> None:
            raw = self._raw_of(batch)
            if raw is not None:
                with self._lock:
                    self._raw[id(batch)] = (batch, raw)
            emit(batch)

        return note_and_emit

    def _raw_of(self, batch: Batch) -> Raw | None:
        if batch.source == KMSG and self._device is not None:
            lines, overruns = self._device.take()
            return Raw(lines=lines, overruns=overruns) if lines or overruns else None
        if _says_that_a_poll_is_out(batch):
            return None
        if batch.source in self._polls and self._polls[batch.source].polls:
            began, answers = self._polls[batch.source].polls.popleft()
            return Raw(began=began, answers=answers)
        if batch.source in self._pages and self._pages[batch.source].pages:
            return Raw(exporter=self._pages[batch.source].pages.popleft())
        return None

    def begin(self, now: float, engine: Engine, settings: AgentSettings, kmsg: Mapping[str, object]) -> None:
        """See :class:`Taps`."""
        self._writer.entry(now, "recorded", {
            "version": __version__, "rules": engine.rules.hash, "soak": settings.soak,
            "any_facility": settings.kmsg_any_facility})
        if engine.series.all or engine.faults.open or engine.node_uid or engine.inventory.expected:
            known = {**memory.boot_part(engine), "now": max(engine.now, 0.0)}
            self._writer.entry(now, "memory", {
                "boot_id": engine.sources.boot_id, "node_uid": engine.node_uid, "node": memory.node_part(engine),
                "boot": known, "kmsg": kmsg})

    def took(self, now: float, batch: Batch) -> None:
        """See :class:`Taps`."""
        with self._lock:
            _, raw = self._raw.pop(id(batch), (batch, NOTHING))
        if self._file is not None:
            self._writer.batch(now, batch, raw)

    def judged_by(self, now: float, engine: Engine) -> None:
        """See :class:`Taps`."""
        if self._file is not None:
            self._writer.entry(now, "recorded", {"version": __version__, "rules": engine.rules.hash})

    def end(self, engine: Engine) -> None:
        """See :class:`Taps`."""
        if self._file is not None:
            self._writer.end(max(engine.now, 0.0))
            self.close()

    def _write(self, line: str) -> None:
        if self._file is None:
            return
        self._size += len(line)
        if self._size > self._limit:
            self.close()
            self._note(f"the recording {self._path} has reached its limit of {self._limit} bytes and ends here")
            return
        try:
            self._file.write(line)
        except OSError as error:
            self._note(f"the recording {self._path} cannot be written and ends here: {error.strerror}")
            self.close()

    def close(self) -> None:
        """Write nothing more."""
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
        except OSError as error:
            self._note(f"the recording {self._path} may lack its end: {error.strerror}")


def _says_that_a_poll_is_out(batch: Batch) -> bool:
    """Not what a poll found: see :meth:`nodeguard.sources.polled.PolledSource.turn`."""
    told = batch.samples or batch.events or batch.complete
    out = any(isinstance(fact, Missed) or (isinstance(fact, Stalled) and fact.since is not None)
              for fact in batch.facts)
    return not told and out and not any(isinstance(fact, SourceState) for fact in batch.facts)
