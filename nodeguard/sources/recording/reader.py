"""A recording, entry by entry: text → checked entries → what the engine is to be given."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeguard.config.yamltree import load_yaml
from nodeguard.model.errors import Problem, UserError
from nodeguard.model.sample import Batch, Booted, Expected
from nodeguard.sources.polled import Poll, Sight
from nodeguard.sources.recording import checks, gpus, told
from nodeguard.sources.recording.exporters import Exporters
from nodeguard.sources.recording.host import host
from nodeguard.sources.recording.kernel import Kernel
from nodeguard.sources.recording.memory import Memory, Recorded, memory, recorded
from nodeguard.sources.recording.others import node, pods, repaired
from nodeguard.sources.recording.readers import Readers
from nodeguard.sources.recording.tree import RecordedTree

UNNAMED_BOOT = "recorded"
"""Boot ID before the first reboot, where a recording names none."""

_RAW = frozenset({"nvml", "nvml_event", "kmsg", "kmsg_error", "exporter", "sysfs", "host", "pods"})
"""What a source reads. Beside ``told`` it only moves the reader's memory: ``told`` is what the source made of it."""

_BESIDE = ("happened", "of", "began")
"""Keys that belong to another: when kernel records were printed; which poll of sysfs it was, and when it began."""

YAML_LIMIT = 64 << 20
"""Characters of a YAML recording; longer ones are JSON Lines, which are read a line at a time."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a recording, not yet checked."""

    line: int
    column: int
    value: Any


@dataclass(frozen=True, slots=True)
class Restart:
    """The agent restarts here."""


What = Batch | Restart | Memory | None
"""What an entry may hold: a batch, an agent's restart, what an agent remembered, or nothing but its time."""


@dataclass(frozen=True, slots=True)
class Act:
    """What happens at ``at`` seconds."""

    at: float
    what: What


def entries_of_file(path: Path, problems: list[Problem]) -> Iterator[Entry]:
    """Entries of a JSON Lines or YAML file. UserError when it cannot be read."""
    try:
        with path.open(encoding="utf-8") as lines:
            if path.suffix in (".jsonl", ".ndjson"):
                yield from _json_lines(lines, str(path), problems)
            else:
                yield from entries_of_yaml(lines.read(), str(path), problems)
    except OSError as error:
        raise UserError(f"cannot read the recording {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no recording: it is not text in UTF-8") from error


def _json_lines(lines: Iterable[str], file: str, problems: list[Problem]) -> Iterator[Entry]:
    decode = json.JSONDecoder(parse_constant=_refuse).decode
    number = 0
    whole = False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield Entry(number, 1, decode(line))
            whole = True
        except (ValueError, RecursionError) as error:
            if whole and not line.endswith("\n"):
                return  # the recording was cut in the middle of its last entry
            column = error.colno if isinstance(error, json.JSONDecodeError) else 1
            problems.append(Problem(file, number, column, "", f"not JSON: {getattr(error, 'msg', error)}"))
    if not number:
        problems.append(Problem(file, 0, 0, "", "the recording is empty"))


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number")


def entries_of_yaml(text: str, file: str, problems: list[Problem]) -> Iterator[Entry]:
    """Entries of a YAML list."""
    loaded = load_yaml(text, file, max_characters=YAML_LIMIT)
    problems.extend(loaded.problems)
    if not loaded.documents and not loaded.problems:
        problems.append(Problem(file, 0, 0, "", "the recording is empty"))
    for document in loaded.documents:
        if not isinstance(document.value, tuple):
            problems.append(Problem(file, document.at.line, document.at.column, "", "a recording is a list of entries"))
            continue
        for item in document.items():
            yield Entry(item.at.line, item.at.column, item.plain())


class Recording:
    """Checks entries and turns them into acts. Every mistake becomes a problem; the entry's rest goes on."""

    def __init__(self, file: str, problems: list[Problem], readers: Readers) -> None:
        self._file, self._problems, self._readers = file, problems, readers
        self._kernel = Kernel(readers.kernel_log)
        self.tree = RecordedTree()
        self.recorded: list[Recorded] = []
        """What the agent that was recorded said of itself."""
        self._begin()
        self._at = float("-inf")
        self._entry = Entry(0, 0, None)
        self._booted = False
        self._expected: tuple[Batch, ...] = ()
        self._convert: Mapping[str, Callable[[float, Any], Iterable[What]]] = {
            "recorded": self._recorded, "memory": self._memory,
            "node": self._node,
            "nvml": lambda at, value: (self._gpus.poll(at, value, self._report),),
            "nvml_event": lambda _at, value: (gpus.event(value, self._report),),
            "kmsg_error": lambda _at, value: self._kernel.error(value, self._report),
            "kmsg": lambda at, value: self._kernel.lines(at, value, self._entry.value.get("happened"), self._report),
            "exporter": lambda at, value: self._exporters.entry(at, value, self._report), "sysfs": self._sysfs,
            "host": lambda _at, value: host(value, self._report),
            "pods": lambda _at, value: (pods(value, self._report),),
            "repaired": lambda _at, value: (repaired(value, self._report),),
            "told": self._told, "agent_restart": self._restart, "reboot": self._reboot,
        }

    def acts(self, entries: Iterable[Entry]) -> Iterator[Act]:
        """What happens, in order. A bad entry costs itself only; see ``problems`` at the end."""
        ended = False
        for entry in entries:
            self._entry = entry
            if not isinstance(entry.value, Mapping):
                checks.mapping(entry.value, "an entry", self._report)
                continue
            if ended:
                self._report("'until' is the last entry: nothing may come after it")
                return
            ended = "until" in entry.value
            yield from self._until(entry.value) if ended else self._acts_of(entry.value)

    def _until(self, value: Mapping[Any, Any]) -> Iterator[Act]:
        at = self._time(value, "until", ("until",))
        if at is not None:
            yield Act(at, None)

    def _acts_of(self, value: Mapping[Any, Any]) -> Iterator[Act]:
        at = self._time(value, "at", ("at", *self._convert, *_BESIDE))
        if at is None:
            return
        silent = True
        for key, content in value.items():
            convert = self._convert.get(key)
            for what in convert(at, content) if convert is not None else ():
                if key in _RAW and "told" in value:
                    continue
                silent = False
                yield Act(at, what)
        if silent:
            yield Act(at, None)

    def _time(self, value: Mapping[Any, Any], key: str, valid: tuple[str, ...]) -> float | None:
        checks.unknown_keys(value, valid, "an entry", self._report)
        at = value.get(key)
        if isinstance(at, bool) or not isinstance(at, int | float) or not checks.finite(at):
            self._report(f"an entry needs {key!r}, in seconds")
            return None
        if at < self._at:
            self._report(f"{key!r} must not go back: {at:g} comes after {self._at:g}")
            return None
        self._at = float(at)
        return self._at

    def _report(self, message: str) -> None:
        entry = self._entry
        self._problems.append(Problem(self._file, entry.line, entry.column, "", message))

    def _begin(self) -> None:
        """What a new agent knows of its sources: nothing."""
        self._gpus = gpus.Gpus()
        self._exporters = Exporters(self._readers.exporter)
        self._polls: tuple[tuple[Poll, Sight], ...] = tuple(
            (poll, Sight()) for poll in self._readers.sysfs(self.tree, bool(self.recorded)))

    def _sysfs(self, at: float, value: Any) -> Iterable[Batch]:
        self.tree.patch(value, self._report)
        of, began = self._entry.value.get("of"), self._entry.value.get("began", at)
        if isinstance(began, bool) or not isinstance(began, int | float) or not checks.finite(began):
            self._report(f"'began' must be in seconds, not {began!r}")
            began = at
        return tuple(sight.of(poll.poll(began)) for poll, sight in self._polls if of in (None, poll.name))

    def _node(self, _at: float, value: Any) -> Iterable[Batch]:
        for batch in node(value, self._report):
            self._booted = self._booted or any(isinstance(fact, Booted) for fact in batch.facts)
            expected = tuple(fact for fact in batch.facts if isinstance(fact, Expected))
            if expected:
                self._expected = (Batch(source=batch.source, facts=expected, samples=batch.samples),)
            yield batch

    def _recorded(self, _at: float, value: Any) -> Iterable[None]:
        self.recorded.append(recorded(value, self._report))
        if len(self.recorded) == 1:
            self._begin()
        self._kernel.believe(any_facility=self.recorded[-1].any_facility)
        return ()

    def _memory(self, _at: float, value: Any) -> Iterable[Memory]:
        remembered = memory(value, self._report)
        self._booted = True
        self._kernel.restore(remembered.kmsg)
        return (remembered,)

    def _told(self, _at: float, value: Any) -> Iterable[Batch]:
        batch = told.decode(value, self._report)
        if batch is None:
            return ()
        self._gpus.told(batch)
        self._kernel.told(batch)
        self._booted = self._booted or any(isinstance(fact, Booted) for fact in batch.facts)
        return (batch,)

    def _restart(self, _at: float, value: Any) -> Iterable[Restart]:
        if value is not True:
            self._report("agent_restart must be true")
            return
        self._kernel.restart()
        self._begin()
        yield Restart()

    def _reboot(self, at: float, value: Any) -> Iterable[Batch]:
        value = checks.mapping(value, "reboot", self._report)
        checks.unknown_keys(value, ("boot_id",), "reboot", self._report)
        boot_id = checks.text(value.get("boot_id"), "boot_id", self._report)
        self._kernel.reboot()
        self.tree.clear()
        self._begin()
        if not self._booted:
            self._booted = True
            yield Batch(source="agent", facts=(Booted(UNNAMED_BOOT),))
        yield Batch(source="agent", facts=(Booted(boot_id, at),))
        yield from self._expected
