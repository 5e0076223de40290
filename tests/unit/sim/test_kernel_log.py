"""The simulated kernel log prints records as /dev/kmsg does and never blocks its writer for ever."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.clock import FakeClock
from nodeguard.sim.kernel_log import KernelLogPipe, escape


@pytest.fixture
def log(tmp_path: Path) -> Iterator[KernelLogPipe]:
    """A log at boot time 12.5 s."""
    with KernelLogPipe(tmp_path / "kmsg", clock=FakeClock(boot=12.5), patience=0.01) as pipe:
        yield pipe


def lines(log: KernelLogPipe) -> list[str]:
    """What a reader that opens the log now is given."""
    reader = os.open(log.path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(reader, 1 << 20).decode("ascii").splitlines()
    finally:
        os.close(reader)


def test_records_have_level_sequence_and_time(log: KernelLogPipe) -> None:
    """Facility 0, a rising sequence and microseconds since boot, before anybody reads."""
    assert (log.write("one"), log.write("two", level=3)) == (0, 1)
    assert lines(log) == ["4,0,12500000,-;one", "3,1,12500000,-;two"]


def test_an_xid_line_is_the_drivers(log: KernelLogPipe) -> None:
    """The slot without its function, pid and name only when known."""
    log.xid("00000000:3B:00.0", 79, "GPU has fallen off the bus.")
    log.xid("0000:3b:00.0", 95, "Uncontained: LTC TAG", pid=7, name="python3")
    assert [line.partition(";")[2] for line in lines(log)] == [
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00): 95, pid=7, name=python3, Uncontained: LTC TAG"]


def test_escapes_are_the_kernels() -> None:
    r"""Newlines inside, backslashes and bytes outside ASCII are \xNN; the newline at the end is the record's own."""
    assert escape("a\nb\\é\n") == r"a\x0ab\x5c\xc3\xa9"


@given(st.text())
def test_every_text_is_one_printable_line(text: str) -> None:
    """Whatever is written is one line that one atomic write of a pipe can carry."""
    line = escape(text)
    assert line.isascii()
    assert line == "" or line.isprintable()
    assert len(line) < 4000


def test_a_full_log_loses_records_and_numbers_them(log: KernelLogPipe) -> None:
    """Nobody reads: the writer goes on, the losses are counted, and the next reader sees the gap."""
    while not log.lost:
        log.write("x" * 900)
    kept = len(lines(log))
    log.write("after")
    assert lines(log)[-1].split(",")[1] == str(kept + log.lost)


def test_close_removes_the_fifo(log: KernelLogPipe) -> None:
    """Nothing stays behind, and closing again is harmless."""
    log.close()
    log.close()
    assert not log.path.exists()
