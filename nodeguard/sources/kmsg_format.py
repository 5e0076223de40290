r"""The text form of one kernel log record, and the way back for recordings. Pure.

Linux Documentation/ABI/testing/dev-kmsg: ``prio,seq,usec,flags[,more];text``, then lines that begin with a space and
hold ``KEY=value``. Bytes that are not printable ASCII, and the backslash, arrive as ``\xNN``.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
_HEADER = re.compile(r"\d+,\d+,[^;]*;", re.ASCII)
_FRAGMENT = (b"c", b"+")
_DIGITS = 20  # of a 64-bit number
_WARNING = 4  # level of a line that a recording gives without a header; facility 0


class Record(NamedTuple):
    """One read, as far as it could be understood."""

    sequence: int
    facility: int | None
    """0 is the kernel; None: the priority is no number."""
    stamp: float | None
    """Seconds since boot on printk's clock; None: not a number."""
    fragment: bool
    """The flags say that this is a piece of a line."""
    caller: str
    """``caller=T<thread>`` or ``caller=C<cpu>``; empty where the kernel is built without CONFIG_PRINTK_CALLER."""
    body: bytes


def parse(raw: bytes) -> Record | None:
    """The record in one read; None if it has no header with a sequence number."""
    header, separator, body = raw.partition(b";")
    fields = header.split(b",")
    sequence = _number(fields[1]) if separator and len(fields) >= 3 else None
    if sequence is None:
        return None
    priority, microseconds = _number(fields[0]), _number(fields[2])
    return Record(
        sequence,
        None if priority is None else priority >> 3,
        None if microseconds is None else microseconds / 1e6,
        len(fields) > 3 and fields[3] in _FRAGMENT,
        _caller(fields) if len(fields) > 4 else "",
        body,
    )


def text_of(body: bytes) -> str:
    """The text after a header, unescaped. The attributes in later lines say nothing that is used."""
    line = body.partition(b"\n")[0]
    text = line.decode("utf-8", "replace")
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), line).decode("utf-8", "replace")


def with_header(line: str, sequence: int, stamp: float) -> bytes:
    """A recording's line as a raw read: as it is if it has a header, else the kernel's warning ``sequence``."""
    if _HEADER.match(line):
        return as_bytes(line)
    return f"{_WARNING},{sequence},{round(stamp * 1e6)},-;".encode() + _escaped(line.removesuffix("\n")) + b"\n"


def as_bytes(text: str) -> bytes:
    """A recording's text as it was read; what no text can hold stays escaped."""
    return text.encode("utf-8", "backslashreplace")


def _number(digits: bytes) -> int | None:
    return int(digits) if len(digits) <= _DIGITS and digits.isdigit() else None


def _caller(fields: Sequence[bytes]) -> str:
    for field in fields[4:]:
        if field.startswith(b"caller="):
            return field.decode("ascii", "replace")
    return ""


def _escaped(text: str) -> bytes:
    r"""Text as the kernel would show it, but for backslashes: a recorded line may hold ``\x0a`` already."""
    return b"".join(b"%c" % byte if 0x20 <= byte < 0x7F else b"\\x%02x" % byte for byte in as_bytes(text))
