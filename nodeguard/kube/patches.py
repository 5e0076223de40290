"""What is sent to change a Node, as pure functions of what it says now. Nobody else's entry is ever in them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from nodeguard.kube.api import Object
from nodeguard.model.intent import CONDITION_PATTERN, TAINT_EFFECT, TAINT_KEY

_OWN_TYPE = re.compile(CONDITION_PATTERN)


def is_own_type(word: object) -> bool:
    """Whether a condition type (or taint value) is one that nodeguard may write."""
    return isinstance(word, str) and _OWN_TYPE.fullmatch(word) is not None


def rfc3339(wall: float, timespec: Literal["seconds", "milliseconds"] = "seconds") -> str:
    """Unix time as the API server writes it (metav1.Time): UTC, whole seconds unless asked otherwise."""
    moment = datetime.fromtimestamp(wall, UTC)
    return moment.replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


def unix_time(text: object) -> float | None:
    """The opposite of :func:`rfc3339`; None for what is no time."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def status_patch(
    conditions: Sequence[Object], removed: Iterable[str], annotations: Mapping[str, str | None]
) -> Object:
    """A strategic merge patch of ``nodes/status``: conditions by type and annotations, in one write.

    The list of conditions has the merge key ``type`` (core/v1 NodeStatus), so others' entries stay. An annotation
    of None is removed.
    """
    deleted = [{"type": name, "$patch": "delete"} for name in removed]
    return {"metadata": {"annotations": dict(annotations)}, "status": {"conditions": [*conditions, *deleted]}}


@dataclass(frozen=True, slots=True)
class Taints:
    """What a Node's taints should be."""

    wanted: list[Object] | None
    """The whole list, others' entries as they were and in their order; None: nothing to change."""
    foreign: Object | None
    """A taint under nodeguard's key that nodeguard did not write; it is left as it is."""


def taints_with(current: Sequence[Object], value: str) -> Taints:
    """Add nodeguard's taint with this value, or change its value in place.

    Key and effect together are unique in the list (core/v1 validation), so where somebody else holds nodeguard's key
    with its effect, there is no room for another.
    """
    foreign = _foreign(current)
    if foreign is not None and foreign.get("effect") == TAINT_EFFECT:
        return Taints(None, foreign)
    own = {"key": TAINT_KEY, "value": value, "effect": TAINT_EFFECT}
    standing = [taint for taint in current if _is_own(taint)]
    if not standing:
        return Taints([*current, own], foreign)
    if standing[0].get("value") == value:
        return Taints(None, foreign)
    return Taints([own if _is_own(taint) else taint for taint in current], foreign)


def taints_without(current: Sequence[Object]) -> Taints:
    """Remove nodeguard's taint, whatever its value."""
    kept = [taint for taint in current if not _is_own(taint)]
    return Taints(kept if len(kept) < len(current) else None, _foreign(current))


def taint_patch(resource_version: str, taints: Sequence[Object]) -> Object:
    """A JSON merge patch of a Node's taints, refused with 409 if the Node changed since ``resource_version``.

    ``spec.taints`` is one atomic list: without the precondition, a taint added meanwhile by somebody else would be
    lost (kubernetes/kubernetes#113136).
    """
    return {"metadata": {"resourceVersion": resource_version}, "spec": {"taints": list(taints)}}


def has_own(current: Sequence[Object]) -> bool:
    """Whether nodeguard's taint is there, whatever its value."""
    return any(_is_own(taint) for taint in current)


def _is_own(taint: Object) -> bool:
    return taint.get("key") == TAINT_KEY and taint.get("effect") == TAINT_EFFECT and is_own_type(taint.get("value"))


def _foreign(current: Sequence[Object]) -> Object | None:
    """Somebody else's taint under our key; the one that leaves no room for ours, if there are two."""
    found = [taint for taint in current if taint.get("key") == TAINT_KEY and not _is_own(taint)]
    return max(found, key=lambda taint: taint.get("effect") == TAINT_EFFECT, default=None)
