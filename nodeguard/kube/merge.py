"""Merge patch (RFC 7396) and strategic merge patch, as pure functions: nothing given is changed.

Strategic merge differs in lists: those with a merge key are merged by it, all others are replaced. The keys are
those of the Go types' ``patchMergeKey`` tags (k8s.io/api core/v1 and batch/v1, meta/v1); ``spec.taints`` and
tolerations have none and are replaced whole.
"""

from collections.abc import Mapping
from typing import Any

MERGE_KEYS = {
    "conditions": "type", "addresses": "type", "ownerReferences": "uid", "containers": "name", "initContainers": "name",
    "volumes": "name", "env": "name", "volumeMounts": "mountPath", "imagePullSecrets": "name",
}
PRIMITIVE_SETS = frozenset({"finalizers"})
"""Lists of plain values that are united instead of replaced."""

_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"

Object = dict[str, Any]


def merge(old: Any, patch: Any) -> Any:
    """RFC 7396: null removes, an object merges, anything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    new: Object = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merge(new.get(key), value)
    return new


def strategic(old: Mapping[str, Any], patch: Mapping[str, Any]) -> Object:
    """Strategic merge of ``patch`` into ``old``, with ``$patch: delete`` and ``replace`` honoured."""
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    new: Object = dict(old)
    for key, value in patch.items():
        if key.startswith(_DELETE_PRIMITIVES):
            _delete_primitives(new, key.removeprefix(_DELETE_PRIMITIVES), value)
        elif value is None:
            new.pop(key, None)
        elif not key.startswith("$"):  # $setElementOrder and $retainKeys only tell an order and a cleaning
            new[key] = _strategic_value(key, new.get(key), value)
    return new


def _strategic_value(key: str, old: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return strategic(old if isinstance(old, Mapping) else {}, value)
    if isinstance(value, list) and key in MERGE_KEYS:
        return _merge_list(old or [], value, MERGE_KEYS[key])
    if isinstance(value, list) and key in PRIMITIVE_SETS:
        return [*(old or []), *(each for each in value if each not in (old or []))]
    return value


def _merge_list(old: list[Object], patch: list[Object], key: str) -> list[Object]:
    """Known elements keep their place, new ones come last."""
    if any(element.get("$patch") == "replace" for element in patch):
        return [element for element in patch if "$patch" not in element]
    merged = {element.get(key): element for element in old}
    for element in patch:
        name = element.get(key)
        if element.get("$patch") == "delete":
            merged.pop(name, None)
        else:
            merged[name] = strategic(merged.get(name, {}), element)
    return list(merged.values())


def _delete_primitives(new: Object, key: str, values: list[Any]) -> None:
    new[key] = [each for each in new.get(key, []) if each not in values]
