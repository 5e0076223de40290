"""The brake as an agent obeys it: asked for before a taint is added, and let alone when it does not answer."""

import dataclasses

from nodeguard.kube.api import Api
from nodeguard.kube.brake import Brake, fetch, held
from nodeguard.model.errors import ApiError
from nodeguard.model.fault import EFFECTS, Fault
from nodeguard.model.intent import Intent

PATIENCE = 0.2
"""Seconds that a taint may wait for the brake; without an answer there is none."""

Wish = tuple[tuple[str, str, str], ...]
"""Rule, content hash and device of every fault that asks for the taint."""


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
