"""Raw reads of /dev/kmsg become Batches. Pure: shared by the live reader and by replay.

**The sum is exact.** Over all Batches, ``kmsg_records_total + kmsg_lost_total`` is the last sequence number minus the
first, plus one. A record whose number can be read counts by its number, even when the rest is malformed. A read
without a number used up a number of its own if it was a record at all, so it counts when the next number shows a
hole for it, and that hole is then not a loss; without a hole it was no record and is only malformed.

**Fragments.** Since Linux 4.9 the flag ``c`` marks text that continues an earlier record of the same caller which the
kernel could not append to, because other records came between (printk.c vprintk_store, LOG_CONT); that earlier
record carries ``-``. Before, ``c`` marked the first fragment and ``+`` the later ones. Nothing says that more will
follow, and waiting costs time, so each record is given to the parsers at once; only when a fragment tells
nothing by itself is it given again with the open line of its caller in front.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from nodeguard.model.device import NODE
from nodeguard.model.sample import Batch, Event, Fact, Gap, Sample, Told
from nodeguard.sources.kmsg_format import Record, parse, text_of, with_header

SOURCE = "kmsg"

RECORDS = "kmsg_records_total"
LOST = "kmsg_lost_total"
MALFORMED = "kmsg_malformed_total"
DUPLICATE = "kmsg_duplicate_total"
UNTRUSTED = "kmsg_untrusted_total"
OVERRUNS = "kmsg_overruns_total"

_OPEN_LINES = 8  # callers whose last line may still be continued
_LINE_LIMIT = 8192  # characters of an open line; one record holds 1 to 2 KiB of text (printk.c)

class LineParser(Protocol):
    """What makes sense of a line: one per driver whose messages are known."""

    def feed(self, text: str, stamp: float | None) -> Told | None:
        """What the line tells, perhaps nothing; None: not a line of this parser's driver."""
        ...

    def state(self) -> dict[str, object]:
        """JSON-able memory."""
        ...

    def restore(self, state: Mapping[str, object]) -> None:
        """Take up the memory that :meth:`state` gave."""
        ...


class _Run(NamedTuple):
    """Records whose order the engine need not know."""

    samples: list[Sample]
    events: list[Event]
    facts: list[Fact]


class KernelLog:
    """The kernel log as one stream of numbered records. Not thread-safe.

    Only facility 0 is evidence: the kernel does not let user space write it. Records of other facilities are
    skipped, and counted where a parser would have taken their text, unless ``any_facility`` (a test switch).
    ``engine_time`` turns a record's stamp into engine time, for events only.
    """

    def __init__(self, parsers: Sequence[LineParser], *, any_facility: bool = False,
                 engine_time: Callable[[float], float] | None = None) -> None:
        self._parsers = tuple(parsers)
        # Parsers learn from what they read, and what user space wrote must teach nothing.
        self._untrusting = copy.deepcopy(self._parsers)
        self._any_facility = any_facility
        self._engine_time = engine_time
        self._cursor: int | None = None
        self._newest: int | None = None
        self._unnumbered = 0
        # By caller: a line that told nothing and that a fragment may still complete, and whether it is one itself.
        self._open: dict[str, tuple[str, bool]] = {}
        self._counts: dict[str, int] = {}

    @property
    def cursor(self) -> int | None:
        """Sequence number of the last record taken; None before the first."""
        return self._cursor

    def feed(self, raws: Sequence[bytes]) -> Batch | None:
        """Take several reads in order. None: no fact, sample or event; the counts wait for the next Batch."""
        runs: list[_Run] = []
        for raw in raws:
            told = self._take(raw)
            if told is not None and any(told):
                _append(runs, told)
        if not runs:
            return None
        first, *then = (Told(tuple(run.samples), tuple(run.events), tuple(run.facts)) for run in runs)
        return Batch(source=SOURCE, samples=first.samples, events=first.events, facts=first.facts, then=tuple(then),
                     counts=self._counted())

    def drain(self) -> Batch | None:
        """The counts that no Batch has carried yet; None if there are none."""
        return Batch(source=SOURCE, counts=self._counted()) if self._counts else None

    def overrun(self) -> None:
        """The kernel said EPIPE: the next record's number will tell how many were lost."""
        self._count(OVERRUNS)

    def reopened(self) -> None:
        """Reading starts again at the oldest record that is left."""
        self._newest = None
        self._unnumbered = 0

    def caught_up(self) -> bool:
        """Nothing more waits. False: everything since :meth:`reopened` was older than the cursor.

        Then this is another kernel's log than the one that the cursor was in: the cursor is forgotten, and the
        caller reads again from the oldest record.
        """
        if self._newest is None or self._cursor is None or self._newest >= self._cursor:
            return True
        self._cursor = self._newest = None
        self._open.clear()
        return False

    def with_header(self, line: str, stamp: float) -> bytes:
        """A recording's line as a raw read. Without a header: the next number, ``stamp``, kernel, warning."""
        return with_header(line, 0 if self._cursor is None else self._cursor + 1, stamp)

    def state(self) -> dict[str, object]:
        """JSON-able memory: where reading stands, lines that may be continued, what the parsers know."""
        return {
            "cursor": self._cursor,
            "unnumbered": self._unnumbered,
            "open": [[caller, text, fragment] for caller, (text, fragment) in self._open.items()],
            "parsers": [parser.state() for parser in self._parsers],
        }

    def restore(self, state: Mapping[str, object]) -> None:
        """Take up the memory that :meth:`state` gave; what has not its form is left out."""
        cursor, unnumbered, lines, parsers = (state.get(key) for key in ("cursor", "unnumbered", "open", "parsers"))
        self._cursor = cursor if isinstance(cursor, int) else None
        self._unnumbered = unnumbered if isinstance(unnumbered, int) else 0
        self._open = dict(line for line in map(_open_line, _items(lines)) if line is not None)
        for parser, memory in zip(self._parsers, _items(parsers), strict=False):
            if isinstance(memory, Mapping):
                parser.restore(memory)

    def _take(self, raw: bytes) -> Told | None:
        record = parse(raw)
        if record is None:
            self._unnumbered += 1
            self._count(MALFORMED)
            return None
        lost = self._advance(record.sequence)
        if lost is None:
            self._count(DUPLICATE)
            return None
        gap = self._gap(lost, record) if lost else None
        told = self._read(record)
        return told if gap is None else _both(gap, told)

    def _advance(self, sequence: int) -> int | None:
        """Move the cursor to ``sequence``: how many records before it are lost; None if it was taken before."""
        if self._newest is None or sequence > self._newest:
            self._newest = sequence
        unnumbered, self._unnumbered = self._unnumbered, 0
        hole = 0 if self._cursor is None else sequence - self._cursor - 1
        if hole < 0:
            return None
        self._cursor = sequence
        seen = min(hole, unnumbered) if hole else 0
        self._count(RECORDS, 1 + seen)
        return hole - seen

    def _gap(self, lost: int, before: Record) -> Told:
        self._count(LOST, lost)
        self._open.clear()
        text = f"{lost} kernel log records were overwritten before they could be read"
        event = Event("kmsg_gap", NODE, {"lost": lost}, text=text)
        return Told(events=(self._dated(event, before.stamp, f"gap/{before.sequence}"),), facts=(Gap(lost),))

    def _read(self, record: Record) -> Told | None:
        if record.facility is None or record.stamp is None:
            self._count(MALFORMED)
            return None
        text = text_of(record.body)
        if record.facility and not self._any_facility:
            self._count(UNTRUSTED, _would_take(self._untrusting, text, record.stamp))
            return None
        told = self._parse(text, record)
        if told is None or not told.events:
            return told
        key = str(record.sequence)
        return told._replace(events=tuple(self._dated(event, record.stamp, key) for event in told.events))

    def _parse(self, text: str, record: Record) -> Told | None:
        line = self._open.pop(record.caller, None)
        told = _ask(self._parsers, text, record.stamp)
        if _tells(told):
            return told
        if line is not None and (record.fragment or line[1]):
            joined = line[0] + text
            told = _ask(self._parsers, joined, record.stamp)
            text = joined if record.fragment else text
        if not _tells(told) and len(text) <= _LINE_LIMIT:
            if len(self._open) >= _OPEN_LINES:
                del self._open[next(iter(self._open))]
            self._open[record.caller] = (text, record.fragment)
        return told

    def _dated(self, event: Event, stamp: float | None, key: str) -> Event:
        at = None if stamp is None or self._engine_time is None else self._engine_time(stamp)
        return event._replace(stamp=stamp, at=at, key=key)

    def _count(self, name: str, by: int = 1) -> None:
        if by:
            self._counts[name] = self._counts.get(name, 0) + by

    def _counted(self) -> dict[str, int]:
        counts, self._counts = self._counts, {}
        return counts


def _append(runs: list[_Run], told: Told) -> None:
    """Add to the last run, or begin another: within one, facts and samples come before events."""
    if not runs or ((told.facts or told.samples) and runs[-1].events):
        runs.append(_Run([], [], []))
    runs[-1].samples.extend(told.samples)
    runs[-1].events.extend(told.events)
    runs[-1].facts.extend(told.facts)


def _ask(parsers: Sequence[LineParser], text: str, stamp: float | None) -> Told | None:
    for parser in parsers:
        told = parser.feed(text, stamp)
        if told is not None:
            return told
    return None


def _tells(told: Told | None) -> bool:
    return told is not None and any(told)


def _would_take(parsers: Sequence[LineParser], text: str, stamp: float) -> bool:
    """Whether the text, or what follows a program's tag (``ncat[1749]: ``), would pass for a driver's line."""
    return _ask(parsers, text, stamp) is not None or _ask(parsers, text.partition(": ")[2], stamp) is not None


def _both(gap: Told, told: Told | None) -> Told:
    if told is None:
        return gap
    return Told(told.samples, gap.events + told.events, gap.facts + told.facts)


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _open_line(value: object) -> tuple[str, tuple[str, bool]] | None:
    match value:
        case [str(caller), str(text), bool(fragment)]:
            return caller, (text, fragment)
        case _:
            return None
