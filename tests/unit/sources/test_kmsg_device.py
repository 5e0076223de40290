"""Cutting a pipe's or file's bytes into records."""

import pytest

from nodeguard.sources.kmsg_device import Framer


def record(sequence: int) -> bytes:
    return f"4,{sequence},{sequence * 1000},-;something else\n".encode()


def test_framing_is_bounded() -> None:
    """A line without end is cut once, what follows it in the same line is dropped, the next line is whole."""
    framer = Framer()
    records = [got for _ in range(100) for got in framer.push(b"x" * 1000)]
    assert len(records) == 1
    assert framer.push(b"end\n" + record(1)) == [record(1).rstrip()]
    assert framer.flush() == []


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_framing_does_not_depend_on_the_cuts(size: int) -> None:
    """The same records, however the bytes arrive; the last one may lack its newline."""
    data = record(1) + b" KEY=value\n\n" + record(2) + record(3).rstrip()
    framer = Framer()
    got = [line for at in range(0, len(data), size) for line in framer.push(data[at:at + size])]
    assert [*got, *framer.flush()] == [record(number).rstrip() for number in (1, 2, 3)]
