"""Xid 144 to 150: what one NVLink5 error calls for, by unit, sub-code and error status.

The number says little: the same number is printed for a corrected error and for a dead link. The first of these
that is known decides: the catalogue's immediate action for the sub-rule, the ``Fatal``/``Nonfatal`` word, the
number alone (``unread``). Source of the sub-rules: NVIDIA's Xid catalogue, sheet on 144-150, 2025-10-29.
"""

import re
from typing import NamedTuple

from nodeguard.model.sample import Attribute

CODES = range(144, 151)
"""The Xid codes that these rules are about."""

RESOLUTIONS = ("reset", "inspect", "software", "consult_154", "ignore", "unread")
"""Words of the attribute ``resolution`` of these codes: the GPU needs a reset; hardware must be inspected; software
must be investigated; a following Xid 154 decides; nothing to do; the line could not be read that far."""


class SubRule(NamedTuple):
    """One group of the catalogue's sub-rules. None: any."""

    code: int
    units: tuple[str, ...]
    """A unit has two names, one a layout of the info word."""
    statuses: tuple[int, ...] | None
    subcodes: tuple[int, ...] | None
    resolution: str


_PLAIN = (0,)
_SOFTWARE_STATUS = 0x8000_0000
_LINK_DOWN = ("NETIR_LINK_EVT", "NETIR_LINK_DOWN")
_TLW = ("TLW_CTRL", "TLW_RX", "TLW_RX_PIPE0", "TLW_RX_PIPE1", "TLW_TX", "TLW_TX_PIPE0", "TLW_TX_PIPE1")

SUB_RULES = (
    SubRule(144, ("SAW_MVB",), (0x2, 0x10), _PLAIN, "reset"),
    SubRule(144, ("SAW_MVB",), (0x1, 0x4, 0x8, 0x20), _PLAIN, "ignore"),
    SubRule(145, ("RLW_CTRL",), (_SOFTWARE_STATUS,), _PLAIN, "ignore"),
    SubRule(145, ("RLW_REMAP",), (0x1, 0x2, 0x4, 0x8, 0x10, 0x20), _PLAIN, "consult_154"),
    SubRule(145, ("RLW_REMAP",), (0x40, 0x80), _PLAIN, "reset"),
    SubRule(145, ("RLW_REMAP",), (0x100, 0x200, _SOFTWARE_STATUS), _PLAIN, "ignore"),
    SubRule(145, ("RLW_RSPCOL",), (0x2,), _PLAIN, "reset"),
    SubRule(145, ("RLW_RSPCOL",), (0x1, _SOFTWARE_STATUS), _PLAIN, "ignore"),
    SubRule(145, ("RLW_RXPIPE",), (0x1, 0x2, 0x4, 0x8, _SOFTWARE_STATUS), _PLAIN, "ignore"),
    SubRule(145, ("RLW_SRC_TRACK",), (0x1, 0x10, 0x20), _PLAIN, "reset"),
    SubRule(145, ("RLW_SRC_TRACK",), (0x4, 0x8), _PLAIN, "consult_154"),
    SubRule(145, ("RLW_SRC_TRACK",), (0x2, _SOFTWARE_STATUS), _PLAIN, "ignore"),
    SubRule(145, ("RLW_TAGSTATE",), (0x2, 0x2_0000, 0x10_0000), _PLAIN, "reset"),
    SubRule(145, ("RLW_TAGSTATE",), (0x1, 0x1_0000, _SOFTWARE_STATUS), _PLAIN, "ignore"),
    SubRule(146, _TLW, (0x4,), _PLAIN, "reset"),
    SubRule(146, _TLW, (0x1, 0x2, _SOFTWARE_STATUS), _PLAIN, "ignore"),
    SubRule(147, ("TREX",), (0x1, _SOFTWARE_STATUS), _PLAIN, "ignore"),
    SubRule(148, ("NVLPW_CTRL", "NVLPW"), (_SOFTWARE_STATUS,), _PLAIN, "ignore"),
    SubRule(149, ("NETIR", "NETIR_INT"), (0x0,), _PLAIN, "reset"),
    SubRule(149, ("NETIR_BER_EVENT",), None, None, "ignore"),
    # 4 (cartridge) and 10 (PHY timeout): the catalogue resets and has the link's signal investigated, and a reset
    # brings neither a cartridge nor a cable back, so the inspection comes first
    SubRule(149, _LINK_DOWN, None, (4, 10), "inspect"),
    # 38 and 40: the catalogue's immediate action is to ignore, then to investigate software (38) or the host (40)
    SubRule(149, _LINK_DOWN, None, (38, 40), "software"),
    SubRule(149, _LINK_DOWN, None, (0, 1, 2, 15, 16, 17, 18, 21, 22, 32, 33, 34, 35, 36, 37, 42, 43), "reset"),
    SubRule(149, ("NETIR_MFDE_EVENT",), (0x1, 0x4, 0x5, 0x7), _PLAIN, "reset"),
    SubRule(149, ("NETIR_MFDE_EVENT",), (0x3,), _PLAIN, "ignore"),
    SubRule(150, ("MSE_WATCHDOG",), (0x0,), _PLAIN, "reset"),
)

# The driver's message ends the line, so reading from its end keeps a process name out of it.
_LONG_FORM = re.compile(
    r"(?:\A|[\s,])(?P<unit>[A-Z][A-Z0-9_/]{1,60})\s+(?P<word>Fatal|Non-?fatal)\s+XC\d\s+i(?P<injected>\d+)\s+"
    r"Link\s+(?P<link>-?\d{1,4})\s+\((?P<info>0x[0-9a-f]{1,8})\s+(?P<status>0x[0-9a-f]{1,8})(?:\s+0x[0-9a-f]{1,8})*\)"
    r"[\s.]*\Z",
    re.IGNORECASE | re.ASCII,
)


def resolve(code: int, unit: str, word: str, subcode: int, status: int) -> str:
    """The resolution of one error. ``unit`` may carry both of its names with a slash; ``word`` fatal or nonfatal."""
    names = unit.upper().split("/")
    for rule in SUB_RULES:
        if (rule.code == code and any(name in rule.units for name in names)
                and (rule.statuses is None or status in rule.statuses)
                and (rule.subcodes is None or subcode in rule.subcodes)):
            return rule.resolution
    if word == "fatal":
        return "reset"
    return "consult_154" if code == 145 else "ignore"


def read(code: int, message: str) -> dict[str, Attribute]:
    """Attributes told by the message of one of :data:`CODES`; only ``resolution`` where it is not in the long form."""
    match = _LONG_FORM.search(message)
    if match is None:
        return {"resolution": "unread"}
    word = match["word"].lower().replace("-", "")
    subcode = int(match["info"], 16) >> 20 & 0x3F
    found: dict[str, Attribute] = {
        "unit": match["unit"], "word": word, "injected": int(match["injected"]) != 0, "subcode": subcode,
        "resolution": resolve(code, match["unit"], word, subcode, int(match["status"], 16)),
    }
    link = int(match["link"])
    if link >= 0:  # -1: not about one link
        found["link"] = link
    return found
