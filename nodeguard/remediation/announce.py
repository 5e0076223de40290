"""What of the loop's work people are told by Events, on Nodes, on owners, and on nodeguard's own objects."""

import hashlib
from collections.abc import Iterator

from nodeguard.kube import brake
from nodeguard.kube.api import Object
from nodeguard.kube.events import about_node, event_of
from nodeguard.remediation.happenings import Happening
from nodeguard.remediation.incidents_ring import CONFIG_MAP
from nodeguard.remediation.owners import Owner

REPORTER = "nodeguard-remediate"

_ENDINGS = {"released": "the node is given back", "cancelled": "the work is undone: its fault is gone",
            "node-deleted": "the Node was deleted"}


def events_of(told: Happening, *, namespace: str, identity: str) -> list[Object]:
    """The Events that tell of a happening; most have none. ``identity``: which replica says so."""
    events = []
    for about, reason, message, warning, key in _told(told, namespace):
        name = hashlib.sha256("\0".join((about["kind"], about["name"], about["uid"], reason, key)).encode())
        events.append(event_of(about, name=f"nodeguard.{name.hexdigest()[:32]}", at=told.at, reason=reason,
                               message=message, warning=warning, reporter=REPORTER, instance=identity))
    return events


Told = tuple[Object, str, str, bool, str]
"""About what, reason, message, whether it is a warning, and what makes it another Event than the last of its kind."""


def _told(told: Happening, namespace: str) -> Iterator[Told]:
    moment = f"{told.at:.3f}"
    match told.what:
        case "storm" | "storm-over" | "braked":
            yield from _at_large(told, namespace, moment)
        case "suspended" | "resumed":
            yield from _gang(told, moment)
        case "doubt" | "unknown-kind":
            yield from _owner(told)
        case _:
            yield from _node(told, moment)


def _at_large(told: Happening, namespace: str, moment: str) -> Iterator[Told]:
    if told.what == "braked":
        text = (f"the rule {told.text} tainted {told.count} nodes: agents add no more taints for it; end that with: "
                f"nodeguard brake off --rule {told.text}")
        yield _config_map(brake.CONFIG_MAP, namespace), "RuleBraked", text, True, moment
    elif told.what == "storm":
        yield (_config_map(CONFIG_MAP, namespace), "FaultStorm",
               f"{told.text or f'{told.count} nodes newly at fault'}: nothing more is begun until it is over", True,
               moment)
    else:
        yield (_config_map(CONFIG_MAP, namespace), "FaultStormOver", "nodes at fault are worked on again", False,
               moment)


def _gang(told: Happening, moment: str) -> Iterator[Told]:
    owner = told.owner
    if owner is None:
        return
    on = "" if told.node is None else f" for node {told.node.name}"
    if told.what == "suspended":
        late = f"; {told.count} ranks had failed by themselves, so it will start late" if told.count else ""
        reason, deed = "GangSuspended", f"suspended to be restarted on healthy nodes{on}{late}"
        key = told.incident or moment
    else:
        # one restart for several nodes is resumed once, and told for each
        reason, deed, key = "GangResumed", "resumed: its old pods are gone", moment
    yield _about(owner), reason, deed, False, key
    if told.node is not None:
        yield about_node(told.node.name), reason, f"{owner.title} {deed}", False, f"{key}/{owner.uid}"


def _owner(told: Happening) -> Iterator[Told]:
    owner = told.owner
    if owner is None:
        return
    if told.what == "doubt":
        yield _about(owner), "RestartMayNotHeal", told.text, True, told.text
    else:
        text = (f"pods of this {owner.kind} were evicted; nodeguard does not know whether it makes new ones, nor how "
                "to restart it")
        yield _about(owner), "UnknownOwnerKind", text, True, told.incident


def _node(told: Happening, moment: str) -> Iterator[Told]:
    node, work = told.node, told.record
    if node is None:
        return
    about, key = about_node(node.name), told.incident or moment
    if told.what == "would":
        yield about, "RemediationWould", f"dry run: nodeguard would {told.text}", False, told.text
    elif work is None:
        return
    elif told.what == "begun":
        text = (f"incident {work.incident} for {', '.join(work.rules)}: accelerator pods leave the node; it needs "
                f"{work.action}")
        yield about, "RemediationBegun", text, True, f"{key}/{moment}"
    elif told.what == "closed":
        yield (about, "RemediationEnded", f"incident {work.incident}: {_ENDINGS.get(told.text, told.text)}", False,
               f"{key}/{moment}")
    elif told.what == "state" and work.state in ("stuck", "needs-person"):
        reason = "RemediationStuck" if work.state == "stuck" else "RemediationNeedsPerson"
        yield about, reason, f"incident {work.incident}: {work.reason}", True, f"{key}/{work.since:.3f}"


def _about(owner: Owner) -> Object:
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "namespace": owner.namespace,
            "uid": owner.uid}


def _config_map(name: str, namespace: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "namespace": namespace, "uid": ""}
