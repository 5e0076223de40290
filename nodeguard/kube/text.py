"""Words for people in the places where Kubernetes shows them."""

LONGEST = 1024
"""Bytes of a message: what an Event may hold (core/v1 validation); conditions are kept as short for reading."""

SEPARATOR = "; "
"""Stands between the parts of a message that tells several findings."""


def cut(text: str, longest: int = LONGEST) -> str:
    """``text`` in at most ``longest`` bytes of UTF-8: whole parts and how many more there are, if it has parts."""
    if len(text.encode()) <= longest:
        return text
    parts = text.split(SEPARATOR)
    for kept in range(len(parts) - 1, 0, -1):
        short = SEPARATOR.join(parts[:kept]) + f"{SEPARATOR}and {len(parts) - kept} more"
        if len(short.encode()) <= longest:
            return short
    return text.encode()[: longest - len("…".encode())].decode(errors="ignore") + "…"
