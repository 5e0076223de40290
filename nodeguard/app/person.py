"""What people say to the agent through annotations of its Node."""

import re
from collections.abc import Mapping
from datetime import datetime

from nodeguard.kube import upgrade
from nodeguard.model.device import Device
from nodeguard.model.sample import PersonCleared

QUIESCE_ANNOTATION = "nodeguard.io/quiesce"

CLEAR_ANNOTATION = "nodeguard.io/clear"

_CLEAR = re.compile(r"([a-z0-9][a-z0-9-]*)(?:/([^@,\s]+))?@(\S+)")


def cleared(annotations: Mapping[str, object], wall_minus_boot: float) -> tuple[list[PersonCleared], list[str]]:
    """What ``nodeguard.io/clear=<rule>[/<device>]@<RFC 3339 time>[, …]`` asks for, and what is wrong with it.

    The annotation need not be removed: it acts on faults whose last occurrence is before its time only.
    """
    found, wrong = [], []
    text = annotations.get(CLEAR_ANNOTATION)
    for word in (part.strip() for part in text.split(",")) if isinstance(text, str) else ():
        match = _CLEAR.fullmatch(word)
        at = None if match is None else _time(match[3])
        if match is None or at is None:
            wrong.append(f"the annotation {CLEAR_ANNOTATION} is not understood: {word[:100]!r} must be "
                         "<rule>@<time> or <rule>/<device>@<time>, such as gpu-lost@2026-01-31T12:00:00Z")
            continue
        device = Device(match[2]) if match[2] else None
        found.append(PersonCleared(match[1], device, at - wall_minus_boot))
    return found, wrong


def quiesced_until(annotations: Mapping[str, object], labels: Mapping[str, str]) -> float | None:
    """Unix time until which the agent is asked to let go of the driver (infinite: while a label stands), or None.

    ``nodeguard.io/quiesce=<RFC 3339 time>``; what cannot be read asks for nothing.
    """
    if upgrade.is_under_way(labels):
        return float("inf")
    text = annotations.get(QUIESCE_ANNOTATION)
    return _time(text) if isinstance(text, str) else None


def _time(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.timestamp()
