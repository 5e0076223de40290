"""What the words behind an Xid number say where the number alone says little: 63, 64, 74, 94, 95, 154.

Every pattern is read from the driver's end of the line: the process name in front of it is chosen by a user.
Formats: open-gpu-kernel-modules 595.45.04, ``ras_events`` (row remapper) and ``kern_gpu_error_cont_ga100.c``
(containment), ``gpu.c`` (recovery action); registers of Xid 74: NVIDIA's NVLink workflow for Hopper.
"""

import re
from collections.abc import Callable

from nodeguard.model.sample import Attribute
from nodeguard.vendors.nvidia import nvlink5

_FLAGS = re.IGNORECASE | re.ASCII

# 63 and 64: what became of a bad row, bank or page
_PENDING = re.compile(
    r"(?:marked for remapping|already pending remapping)\b[^:=]{0,120}\Z"
    r"|pending (?:row|bank) remap at 0x[0-9a-f]+\s*\Z",
    _FLAGS)
_EXHAUSTED = re.compile(
    r"(?:remapping table is full|all reserved rows (?:for bank )?are remapped|attempting to remap a reserved row)[\s.]*"
    r"\Z"
    r"|retirement failed due to (?:full inforom object|hw limit reached|no spare for retirement) at 0x[0-9a-f]+\s*\Z",
    _FLAGS)
_RETIRED = re.compile(r"\b(?:page retirement|retired page|page (?:is )?(?:retired|pending retirement))\b", _FLAGS)

# 74: bits of the registers that say what is wrong, strongest first. Registers count from 0.
_REGISTERS = 7
_MEANINGFUL = (0, 2, 3, 4)


def _bits(*numbers: int) -> int:
    return sum(1 << number for number in numbers)


_BENIGN = {0: _bits(0, 23, 30), 4: _bits(20, 23, 26, 29)}
_LINK_ERROR = {0: _bits(4, 5), 2: _bits(0, 1, 2, 6), 4: _bits(18, 19, 21, 22, 24, 25, 27, 28)}
_MARGINAL = {0: _bits(21, 22)}
_SECONDARY = {0: _bits(1, 20), 3: _bits(16, 17, 18)}

_NVLINK = re.compile(r"\blink\s+(?P<link>\d{1,4})\s*\((?P<registers>[0-9a-fx,\s]{0,200})\)[\s.]*\Z", _FLAGS)
_NVLINK_CUT = re.compile(r"\blink\s+(?P<link>\d{1,4})\b[^:=]{0,120}\Z", _FLAGS)
_CONTAINMENT = re.compile(
    r"\b(?:un)?contained:\s*(?P<unit>[A-Z0-9_ ]{1,40}?)\s*\(0x[^)]{0,60}\)\.?"
    r"(?:\s*RST:\s*(?P<rst>Yes|No)\b.{0,60})?\Z", _FLAGS)
_ACTION = re.compile(
    r"GPU recovery action changed\s+(?:from\s+0x[0-9a-f]{1,8}\s*\([^()]*\)\s*)?to\s+0x(?P<to>[0-9a-f]{1,8})\s*"
    r"(?:\([^()]*\))?[\s.]*\Z", _FLAGS)


def recovery_action(message: str) -> int | None:
    """The value that the recovery action changed to (ctrl2080gpu.h: 0 is none), or None where that cannot be read."""
    match = _ACTION.search(message)
    return None if match is None else int(match["to"], 16)


def _retirement(message: str) -> dict[str, Attribute]:
    if _PENDING.search(message):
        return {"resolution": "remap_pending"}
    if _EXHAUSTED.search(message):
        return {"resolution": "remap_failed"}
    return {"resolution": "retirement" if _RETIRED.search(message) else "unread"}


def _register_resolution(registers: tuple[int, ...]) -> str:
    def seen(bits: dict[int, int]) -> bool:
        return any(registers[index] & mask for index, mask in bits.items())

    known = {index: _BENIGN.get(index, 0) | _MARGINAL.get(index, 0) | _SECONDARY.get(index, 0)
             for index in _MEANINGFUL}
    if seen(_LINK_ERROR):
        return "link_error"
    if not any(registers) or any(registers[index] & ~mask for index, mask in known.items()):
        return "other"
    if seen(_MARGINAL):
        return "marginal"
    return "secondary" if seen(_SECONDARY) else "benign"


def _nvlink(message: str) -> dict[str, Attribute]:
    match = _NVLINK.search(message)
    if match is None:
        cut = _NVLINK_CUT.search(message)
        return {"resolution": "unread"} if cut is None else {"resolution": "unread", "link": int(cut["link"])}
    link = int(match["link"])
    words = [word.strip() for word in match["registers"].split(",")]
    if len(words) != _REGISTERS or not all(re.fullmatch(r"(?i)0x[0-9a-f]{1,8}", word) for word in words):
        return {"resolution": "unread", "link": link}
    return {"resolution": _register_resolution(tuple(int(word, 16) for word in words)), "link": link}


def _containment(message: str) -> dict[str, Attribute]:
    match = _CONTAINMENT.search(message)
    if match is None:
        return {}
    found: dict[str, Attribute] = {"unit": match["unit"].strip()}
    if match["rst"]:
        found["reset_required"] = match["rst"].lower() == "yes"
    return found


_READERS: dict[int, Callable[[str], dict[str, Attribute]]] = {
    63: _retirement, 64: _retirement, 74: _nvlink, 94: _containment, 95: _containment,
}


def read(code: int, message: str) -> dict[str, Attribute]:
    """Attributes that the message tells beside the number; what cannot be read is absent or ``unread``."""
    if code in nvlink5.CODES:
        return nvlink5.read(code, message)
    reader = _READERS.get(code)
    return {} if reader is None else reader(message)
