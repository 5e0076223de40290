"""The brake: a ConfigMap that tells every agent to add no taint for one rule, or for any.

``nodeguard-brake`` in nodeguard's namespace has an entry for each brake, ``all`` or ``rule.<name>``, whose value is
``<content hash or *> <since> <by> <reason>``. The hash is that of the rule which went wrong: the brake lets go by
itself when the rule is changed. Only the first word decides, the others are for people, and an entry written by hand
may leave all of it out. ``false`` as the first word is no brake.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodeguard.kube.api import MERGE_PATCH, READ_TIMEOUT, Api, Object
from nodeguard.model.errors import ApiConflict, ApiNotFound

CONFIG_MAP = "nodeguard-brake"
"""Its name; the shipped Role lets agents read this one only."""

ALL = "all"
"""The entry that brakes every rule."""

ANY = "*"
"""Instead of a content hash: the rule, whatever it says."""

_RULE = "rule."
_NONE = frozenset({"false", "off", "no"})
_BLANKS = re.compile(r"\s+")
_HASH = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Hold:
    """One brake."""

    content_hash: str = ANY
    """Of the rule as it is held; ``*``: however it is."""
    words: str = ""
    """Since when, by whom and why, for people."""


@dataclass(frozen=True, slots=True)
class Brake:
    """All brakes at one moment."""

    everything: Hold | None = None
    rules: Mapping[str, Hold] = field(default_factory=dict)
    """By rule name."""


def held(brake: Brake, rule_name: str, content_hash: str) -> bool:
    """Whether this rule, as it is now, may add no taint."""
    hold = brake.rules.get(rule_name)
    return brake.everything is not None or (hold is not None and hold.content_hash in (ANY, content_hash))


def fetch(api: Api, namespace: str, timeout: float = READ_TIMEOUT) -> Brake:
    """The brake in force. ApiError when it cannot be told."""
    try:
        return brake_of(api.get(path(namespace), timeout=timeout))
    except ApiNotFound:
        return Brake()


def path(namespace: str) -> str:
    """The path of the ConfigMap."""
    return f"{collection(namespace)}/{CONFIG_MAP}"


def collection(namespace: str) -> str:
    """The path of the namespace's ConfigMaps."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


def brake_of(config_map: Object) -> Brake:
    """Read the ConfigMap; entries of other names are somebody else's."""
    entries = {key: _hold(text) for key, text in (config_map.get("data") or {}).items()}
    rules = {key.removeprefix(_RULE): hold for key, hold in entries.items() if key.startswith(_RULE) and hold}
    return Brake(entries.get(ALL), rules)


def entry(rule_name: str | None, hold: Hold) -> dict[str, str]:
    """The entry of ``data`` that holds a rule, or all of them."""
    return {_key(rule_name): f"{hold.content_hash} {_BLANKS.sub(' ', hold.words)}".strip()}


def entries_off(rule_names: Iterable[str]) -> dict[str, None]:
    """A merge patch of ``data`` that ends the brakes of these rules."""
    return {_key(name): None for name in rule_names}


def write(api: Api, namespace: str, data: Mapping[str, str]) -> None:
    """Set entries of the ConfigMap, which somebody else may create in the same moment. ApiError: not written."""
    body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP, "namespace": namespace},
                    "data": dict(data)}
    change: Object = {"data": dict(data)}
    try:
        api.patch(path(namespace), change, MERGE_PATCH)
    except ApiNotFound:
        try:
            api.post(collection(namespace), body)
        except ApiConflict:
            api.patch(path(namespace), change, MERGE_PATCH)


def _key(rule_name: str | None) -> str:
    return ALL if rule_name is None else _RULE + rule_name


def _hold(text: str) -> Hold | None:
    first, _, rest = text.strip().partition(" ")
    if first.lower() in _NONE:
        return None
    known = first == ANY or _HASH.fullmatch(first) is not None
    return Hold(first, rest.strip()) if known else Hold(ANY, text.strip())
