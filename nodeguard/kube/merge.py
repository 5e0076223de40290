"""How the API server applies a patch, as pure functions; what the fakes share.

Only what nodeguard's objects need: RFC 7396, and of the strategic merge the one list with a merge key that it
writes, ``conditions`` by ``type``. Every other list, ``taints`` above all, is replaced whole (core/v1 Node).
"""

from typing import Any

from nodeguard.kube.api import Object

_MERGE_KEYS = {"conditions": "type"}


def merge(target: object, patch: object) -> Any:
    """The target after a JSON merge patch (RFC 7396). Neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def strategic(target: object, patch: object) -> Any:
    """The target after a strategic merge patch. Neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif key in _MERGE_KEYS and isinstance(value, list):
            merged[key] = _merge_list(merged.get(key) or [], value, _MERGE_KEYS[key])
        else:
            merged[key] = strategic(merged.get(key), value)
    return merged


def _merge_list(target: list[Object], patch: list[Object], key: str) -> list[Object]:
    merged = {item.get(key): item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            merged.pop(item.get(key), None)
        else:
            merged[item.get(key)] = strategic(merged.get(item.get(key)), item)
    return list(merged.values())
