"""Announces transitions as Events on the Node, where ``kubectl describe node`` and event pipelines show them."""

import hashlib
from collections import Counter
from collections.abc import Iterable

from nodeguard.kube.api import Api, Object
from nodeguard.kube.events import CLUSTER_NAMESPACE, EventQueue, about_node, event_of
from nodeguard.model.clock import Clock
from nodeguard.model.fault import Transition
from nodeguard.model.text import camel_case

COLLECTION = f"/api/v1/namespaces/{CLUSTER_NAMESPACE}/events"
"""Where Events about Nodes live."""


class EventWriter(EventQueue):
    """Tells each transition once, with the guarantees of :class:`nodeguard.kube.events.EventQueue`.

    Faults with effect ``none`` are not told.
    """

    def __init__(self, api: Api, node_name: str, clock: Clock) -> None:
        super().__init__(api, clock, node_name)
        self._node = node_name

    def announce(self, transitions: Iterable[Transition], boot_id: str) -> None:
        """Take transitions to tell. Returns at once, from any thread."""
        self.enqueue(self.compose(transitions, boot_id))

    def compose(self, transitions: Iterable[Transition], boot_id: str) -> list[Object]:
        """The Events that tell these transitions, for :meth:`enqueue`."""
        shift = self._clock.wall() - self._clock.boot()
        told = [one for one in transitions if one.fault.effect != "none"]
        events = [_event(self._node, boot_id, one, one.at + shift) for one in told]
        names: Counter[str] = Counter()
        for one, event in zip(told, events, strict=True):
            name = event["metadata"]["name"]
            names[name] += one.transition != "updated"
            if names[name] > 1:
                # a level that came, went and came again while nobody looked did so at one moment, and yet twice
                event["metadata"]["name"] = f"{name}-{names[name]}"
        return events


def _event(node: str, boot_id: str, transition: Transition, at: float) -> Object:
    fault = transition.fault
    closed = transition.transition == "closed"
    return event_of(
        about_node(node), name=_name(node, boot_id, transition), at=at,
        reason=camel_case(fault.rule) + ("Cleared" if closed else ""), message=_message(transition),
        warning=not closed and fault.severity != "info", reporter="nodeguard", instance=node)


def _name(node: str, boot_id: str, transition: Transition) -> str:
    fault = transition.fault
    key = fault.key or f"{fault.since:.3f}"
    if "@" in key and transition.transition == "closed":
        # not a record but a moment: another life of the same level may have begun at it too
        key += f"/{transition.at:.3f}"
    deed = (node, boot_id, fault.rule, fault.device, transition.transition, key,
            fault.severity, fault.action, fault.effect, fault.would or "")
    return "nodeguard." + hashlib.sha256("\0".join(deed).encode()).hexdigest()[:32]


def _message(transition: Transition) -> str:
    fault = transition.fault
    told = fault.message if fault.device in fault.message else f"{fault.device}: {fault.message}"
    if transition.transition == "closed":
        return f"cleared: {told} ({transition.detail})"
    cure = "" if fault.action == "none" else f"; needs {fault.action}"
    held = "" if fault.would is None else f"; only observed, its effect would be {fault.would}"
    more = "" if fault.runbook is None else f"; see {fault.runbook}"
    return f"{told} ({transition.detail}){cure}{held}{more}"
