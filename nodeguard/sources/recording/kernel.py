"""The ``kmsg`` and ``kmsg_error`` entries of a recording."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodeguard.model.sample import Batch, Event, SourceState, Told
from nodeguard.sources.kmsg_format import as_bytes, parse, with_header
from nodeguard.sources.kmsg_records import SOURCE, KernelLog
from nodeguard.sources.recording import checks
from nodeguard.sources.recording.checks import Report
from nodeguard.sources.recording.gpus import down, up


class Kernel:
    """The kernel log that a recording tells. Lines in one entry are one batch, as they were read."""

    def __init__(self, new: Callable[[bool], KernelLog]) -> None:
        self._new = new
        self._any_facility = False
        self._log = new(False)
        self._up = False

    def believe(self, *, any_facility: bool) -> None:
        """Whether lines that programs wrote are believed: a switch of the agent that was recorded."""
        if any_facility != self._any_facility:
            self._any_facility = any_facility
            self.restart()

    def restart(self) -> None:
        """The agent starts again, with what the log's reader remembers."""
        state = json.loads(json.dumps(self._log.state()))
        self._log = self._new(self._any_facility)
        self._log.restore(state)

    def reboot(self) -> None:
        """Another kernel, another log."""
        self._log = self._new(self._any_facility)
        self._up = False

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Take up what a recorded agent remembered."""
        if state is not None:
            self._log.restore(state)

    def told(self, batch: Batch) -> None:
        """A recorded agent's log said itself whether it can be read, and that it is read anew."""
        states = [fact for fact in batch.facts if isinstance(fact, SourceState)] if batch.source == SOURCE else []
        for state in states:
            self._up = state.up
            if state.up and not state.caught_up:
                self._log.reopened()

    def error(self, value: Any, report: Report) -> Iterable[Batch]:
        """A ``kmsg_error`` entry."""
        if value == "EPIPE":
            self._log.overrun()
        elif value == "closed":
            self._up = False
            self._log.reopened()
            return (down(SOURCE, "the kernel log was closed"),)
        else:
            report(f"kmsg_error must be EPIPE or closed, not {value!r}")
        return ()

    def lines(self, at: float, value: Any, happened: Any, report: Report) -> Iterable[Batch]:
        """A ``kmsg`` entry: a line, or several that were read together; ``happened`` dates its events by their key.

        ``{raw: TEXT}`` in place of a line is a read that was no record.
        """
        if not self._up:
            self._up = True
            yield up(SOURCE)
        raws = self._raws(value if isinstance(value, list) else [value], at, report)
        told, rest = self._log.feed(raws), self._log.drain()
        if told is not None:
            yield told if happened is None else _dated(told, checks.mapping(happened, "happened", report))
        if rest is not None:
            yield rest


    def _raws(self, lines: list[Any], at: float, report: Report) -> list[bytes]:
        raws: list[bytes] = []
        number = 0 if self._log.cursor is None else self._log.cursor + 1
        for line in lines:
            if isinstance(line, Mapping):
                checks.unknown_keys(line, ("raw",), "kmsg", report)
                raws.append(as_bytes(checks.text(line.get("raw"), "kmsg raw", report)))
                continue
            raws.append(with_header(checks.text(line, "kmsg", report), number, at))
            record = parse(raws[-1])
            number = number if record is None else record.sequence + 1
        return raws


def _dated(batch: Batch, happened: Mapping[Any, Any]) -> Batch:
    then = tuple(Told(part.samples, _date(part.events, happened), part.facts) for part in batch.then)
    return dataclasses.replace(batch, events=_date(batch.events, happened), then=then)


def _date(events: tuple[Event, ...], happened: Mapping[Any, Any]) -> tuple[Event, ...]:
    return tuple(event._replace(at=_seconds(happened.get(event.key))) for event in events)


def _seconds(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and checks.finite(value)
    return value if known else None  # type: ignore[return-value]
