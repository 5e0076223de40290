"""The brake: a ConfigMap that tells every agent to add no taint for one rule, or for any.

``nodeguard-brake`` in nodeguard's namespace has an entry for each brake, ``all`` or ``rule.<name>``, whose value is
``<content hash or *> <since> <by> <reason>``. The hash is that of the rule which went wrong: the brake lets go by
itself when the rule is changed. Only the first word decides, the others are for people, and an entry written by hand
may leave all of it out. ``false`` as the first word is no brake.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodeguard.kube.api import READ_TIMEOUT, Api, Object
from nodeguard.model.errors import ApiError, ApiNotFound
from nodeguard.model.fault import EFFECTS, Fault
from nodeguard.model.intent import Intent

CONFIG_MAP = "nodeguard-brake"
"""Its name; the shipped Role lets agents read this one only."""

ALL = "all"
"""The entry that brakes every rule."""

ANY = "*"
"""Instead of a content hash: the rule, whatever it says."""

PATIENCE = 0.2
"""Seconds that a taint may wait for the brake; without an answer there is none."""

_RULE = "rule."
_NONE = frozenset({"false", "off", "no"})
_BLANKS = re.compile(r"\s+")
_HASH = re.compile(r"[0-9a-f]{16}")


Wish = tuple[tuple[str, str, str], ...]
"""Rule, content hash and device of every fault that asks for the taint."""


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


def braked(intent: Intent, brake: Brake) -> Intent:
    """The intent as the brake leaves it: faults that it holds say so and ask for no taint."""
    if not any(_wants_taint(fault) and held(brake, fault.rule, fault.rule_hash) for fault in intent.faults):
        return intent
    faults = tuple(
        dataclasses.replace(fault, held=True) if _wants_taint(fault) and held(brake, fault.rule, fault.rule_hash)
        else fault for fault in intent.faults)
    taint = next((fault.condition for fault in faults if _wants_taint(fault) and not fault.held), None)
    return dataclasses.replace(intent, faults=faults, taint=taint)


def wish_of(intent: Intent) -> Wish:
    """What asks for the taint now."""
    return tuple((fault.rule, fault.rule_hash, fault.device) for fault in intent.faults if _wants_taint(fault))


def _wants_taint(fault: Fault) -> bool:
    return EFFECTS.index(fault.effect) >= EFFECTS.index("noschedule")


def read(api: Api, namespace: str) -> Brake:
    """The brake in force as an agent asks for it before it adds its taint; none when the answer does not come.

    A broken API server or a missing right must not keep a node with a broken GPU open for new pods.
    """
    try:
        return fetch(api, namespace, PATIENCE)
    except ApiError:
        return Brake()


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


def _key(rule_name: str | None) -> str:
    return ALL if rule_name is None else _RULE + rule_name


def _hold(text: str) -> Hold | None:
    first, _, rest = text.strip().partition(" ")
    if first.lower() in _NONE:
        return None
    known = first == ANY or _HASH.fullmatch(first) is not None
    return Hold(first, rest.strip()) if known else Hold(ANY, text.strip())
