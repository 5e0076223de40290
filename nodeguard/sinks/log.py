"""The log: JSON lines on stderr. One line a change that a person may have to know, never one a record or a poll.

Guarantees: a broken, full or closed stderr loses lines (counted) and stops nothing; a flood of the same message
is a handful of lines, and the next one that gets through says how many were held back.
"""

import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from select import POLLOUT, poll
from types import ModuleType
from typing import Any, Protocol, TextIO, cast

from nodeguard.model.clock import Clock, SystemClock
from nodeguard.model.errors import UserError
from nodeguard.model.fault import Transition

_hidden: dict[str, ModuleType | None] = cast("dict[str, ModuleType | None]", sys.modules)
_rich = _hidden.get("rich")
# structlog's console renderer, which is not used here, imports rich where it is installed: 2.5 MB for nothing.
# A None entry makes that import fail as if it were not installed (Python reference, "The module cache").
_hidden["rich"] = None
try:
    import structlog
finally:
    if _rich is None:
        del _hidden["rich"]
    else:
        _hidden["rich"] = _rich

LEVELS = ("debug", "info", "warning", "error")

WINDOW = 10.0
"""Seconds in which repeats are counted."""
SAME_MESSAGE = 3
"""Lines a window with the same words and fields."""
SAME_EVENT = 100
"""Lines a window with the same words and whatever fields."""
REMEMBERED = 512
"""Messages whose repeats are counted; the one quiet for longest is forgotten."""

_SEVERITY_LEVEL = {"info": "info", "warning": "warning", "critical": "error"}


class Log(Protocol):
    """What the agent's parts may say. ``event`` is a fixed sentence; what varies goes into fields."""

    def debug(self, event: str, /, **fields: object) -> object:
        """Only for somebody who hunts a defect."""
        ...

    def info(self, event: str, /, **fields: object) -> object:
        """A change of state that needs nobody."""
        ...

    def warning(self, event: str, /, **fields: object) -> object:
        """Something that works less well than it should."""
        ...

    def error(self, event: str, /, **fields: object) -> object:
        """Something that needs a person, or that nodeguard acts on."""
        ...


def configure(level: str = "info", stream: TextIO | None = None, clock: Clock | None = None) -> Log:
    """A log that writes to ``stream`` (default: stderr) what is at least as grave as ``level``.

    Raises :class:`UserError` for an unknown level.
    """
    if level not in LEVELS:
        raise UserError(f"log level {level!r} is unknown; use one of {', '.join(LEVELS)}")
    clock = clock or SystemClock()
    logger = structlog.wrap_logger(
        structlog.WriteLogger(cast("TextIO", _Lossy(stream or sys.stderr))),
        processors=[_Limiter(clock), _Stamp(clock), structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    return cast("Log", logger.bind())


def transition(log: Log, change: Transition) -> None:
    """Log one change of the set of open faults, as grave as the fault is; a closed one is only information."""
    fault = change.fault
    level = "info" if change.transition == "closed" else _SEVERITY_LEVEL[fault.severity]
    optional = {"pci": fault.pci, "would": fault.would, "condition": fault.condition, "runbook": fault.runbook,
                "was": change.was}
    getattr(log, level)(
        f"fault {change.transition}", rule=fault.rule, device=fault.device, severity=fault.severity,
        action=fault.action, effect=fault.effect, **{name: value for name, value in optional.items() if value},
        message=fault.message, detail=change.detail, count=fault.count, evidence=dict(fault.evidence),
    )


Fields = MutableMapping[str, Any]


class _Stamp:
    """Puts time and level first. RFC 3339, UTC, milliseconds, from the wall clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, _: object, level: str, fields: Fields) -> Mapping[str, Any]:
        time = datetime.fromtimestamp(self._clock.wall(), UTC).isoformat(timespec="milliseconds")
        head = {"time": time.replace("+00:00", "Z"), "level": level, "event": fields.pop("event")}
        return {**head, **fields}


class _Tally:
    """Repeats of one message in the present window."""

    __slots__ = ("held", "passed", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.passed = 0
        self.held = 0


class _Limiter:
    """Holds back repeats. Two limits: one for the same fields, a wide one for the same words."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tallies: OrderedDict[tuple[str, ...], _Tally] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, _: object, level: str, fields: Fields) -> Fields:
        event = str(fields["event"])
        now = self._clock.boot()
        same = repr(sorted(fields.items()))
        with self._lock:
            held = self._admit((level, event, same), SAME_MESSAGE, now) + self._admit((level, event), SAME_EVENT, now)
        if held:
            fields["suppressed"] = held
        return fields

    def _admit(self, key: tuple[str, ...], limit: int, now: float) -> int:
        """How many were held back since the last one admitted; raises DropEvent when this one is held back too."""
        tally = self._tallies.pop(key, None) or _Tally(now)
        self._tallies[key] = tally
        if len(self._tallies) > REMEMBERED:
            self._tallies.popitem(last=False)
        if now - tally.since >= WINDOW:
            tally.since, tally.passed = now, 0
        if tally.passed >= limit:
            tally.held += 1
            raise structlog.DropEvent
        tally.passed += 1
        held, tally.held = tally.held, 0
        return held


class _Lossy:
    """A text stream that drops what it cannot write at once, so that whoever reads the log cannot stop the agent."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._poll: poll | None = None
        self.lost = 0
        """Lines dropped."""
        try:
            descriptor = stream.fileno()
        except (OSError, ValueError):  # a stream in memory
            return
        self._poll = poll()
        self._poll.register(descriptor, POLLOUT)

    def write(self, text: str) -> None:
        """Write one line, or count it as lost."""
        # a pipe polls writable only with a page free, and then takes a line of up to a page at once (pipe(7))
        if self._poll is not None and not self._poll.poll(0):
            self.lost += 1
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the reader is gone, the disk full, or the stream closed
            self.lost += 1

    def flush(self) -> None:
        """Nothing: every line was flushed."""
