"""The log is JSON lines that a flood cannot multiply and a broken stderr cannot turn against the agent."""

import io
import json
import os
import subprocess  # noqa: TID251 - a broken stderr needs a process of its own
import sys
import threading
from typing import Any, Literal

import pytest

from nodeguard.model import device as devices
from nodeguard.model.clock import FakeClock
from nodeguard.model.errors import UserError
from nodeguard.model.fault import Fault, Transition
from nodeguard.sinks.log import SAME_EVENT, SAME_MESSAGE, WINDOW, configure, transition

FAULT = Fault(
    rule="gpu-xid-79", device=devices.gpu("GPU-aaaa"), pci="0000:3b:00.0", severity="critical", action="reboot_node",
    effect="condition", would="evict", scope="node", condition="GpuLost", message="gone", runbook=None, since=1.0,
    last=1.0, count=1, evidence={"code": 79})


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_time_level_and_event_first() -> None:
    """Time is RFC 3339 in UTC from the wall clock; fields follow as given, and odd ones do not break the line."""
    stream = io.StringIO()
    configure("info", stream, FakeClock(wall=1_700_000_000.25)).warning("store is slow", seconds=2, path=object)
    (line,) = lines(stream)
    assert list(line) == ["time", "level", "event", "seconds", "path"]
    assert (line["time"], line["level"], line["event"]) == ("2023-11-14T22:13:20.250Z", "warning", "store is slow")


def test_lower_levels_are_left_out() -> None:
    """At warning, information is not written."""
    stream = io.StringIO()
    log = configure("warning", stream, FakeClock())
    log.debug("a")
    log.info("b")
    log.error("c")
    assert [line["event"] for line in lines(stream)] == ["c"]


def test_an_unknown_level_is_a_sentence() -> None:
    """The words that are valid are told."""
    with pytest.raises(UserError, match="log level 'loud' is unknown; use one of debug, info, warning, error"):
        configure("loud")


@pytest.mark.parametrize(("word", "level"), [("opened", "error"), ("updated", "error"), ("closed", "info")])
def test_a_transition_is_one_line_with_the_fault(word: Literal["opened", "updated", "closed"], level: str) -> None:
    """As grave as the fault while it is open; everything a person needs to find it again."""
    stream = io.StringIO()
    change = Transition(at=1.0, transition=word, fault=FAULT, detail="Xid 79")
    transition(configure("info", stream, FakeClock()), change)
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["detail"]) == (f"fault {word}", level, "Xid 79")
    assert line["device"] == "gpu/GPU-aaaa"
    assert (line["effect"], line["would"], line["evidence"]) == ("condition", "evict", {"code": 79})
    assert "runbook" not in line


def test_a_flood_of_one_message_is_a_handful() -> None:
    """100,000 equal messages are a few lines, and the next after the window says how many were held back."""
    stream, clock = io.StringIO(), FakeClock()
    log = configure("info", stream, clock)
    for _ in range(100_000):
        log.info("again", device="gpu/x")
    assert len(lines(stream)) == SAME_MESSAGE
    clock.advance(WINDOW)
    log.info("again", device="gpu/x")
    assert lines(stream)[-1]["suppressed"] == 100_000 - SAME_MESSAGE


def test_a_flood_of_like_messages_is_bounded() -> None:
    """The same words with ever new fields stop at the wider limit; other words pass."""
    stream = io.StringIO()
    log = configure("info", stream, FakeClock())
    for number in range(10_000):
        log.info("like", number=number)
    log.info("other")
    assert len(lines(stream)) == SAME_EVENT + 1


def test_different_faults_at_once_are_all_told() -> None:
    """Sixteen GPUs that fail in the same moment are sixteen lines."""
    stream = io.StringIO()
    log = configure("info", stream, FakeClock())
    for number in range(16):
        log.error("fault opened", device=f"gpu/{number}")
    assert len(lines(stream)) == 16


def test_a_broken_pipe_stops_nothing() -> None:
    """Nobody reads stderr any more: lines are lost and the process goes on to its own end."""
    code = ("from nodeguard.sinks.log import configure\nlog = configure('info')\n"
            "for number in range(3): log.info('lost', number=number)\nprint('alive')")
    reader, writer = os.pipe()
    os.close(reader)
    child = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writer, check=False, timeout=10)
    os.close(writer)
    assert (child.stdout, child.returncode) == (b"alive\n", 0)


def test_a_full_pipe_does_not_block() -> None:
    """A reader that stands still costs lines, never the caller's time; when it reads again, lines come again."""
    reader, writer = os.pipe()
    clock, stream = FakeClock(), os.fdopen(writer, "w", encoding="utf-8")
    log = configure("info", stream, clock)

    def fill() -> None:
        for number in range(2000):
            log.info("filling", number=number, pad="x" * 200)
            clock.advance(1.0)

    caller = threading.Thread(target=fill, daemon=True)
    caller.start()
    caller.join(5)
    blocked = caller.is_alive()
    os.read(reader, 1 << 20)
    log.info("room again")
    heard = os.read(reader, 1 << 20)
    os.close(reader)
    caller.join(5)
    stream.close()
    assert not blocked
    assert b"room again" in heard


def test_a_closed_stream_stops_nothing() -> None:
    """As at interpreter exit."""
    stream = io.StringIO()
    log = configure("info", stream, FakeClock())
    stream.close()
    log.info("late")


def test_rich_is_not_imported() -> None:
    """The log does not pull in rich where it is installed: 2.5 MB of an agent that promises a limit."""
    code = "import sys, nodeguard.sinks.log; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=10).returncode == 0
