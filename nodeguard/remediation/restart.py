"""A gang's restart, written on its top owner: suspended with a label and an annotation, resumed without them.

The record stands on the owner, not on a Node, because faults of several nodes may want the same restart and a Node
may be deleted in the middle of it. Pure: patches are built here and sent elsewhere.
"""

import dataclasses
import json
from dataclasses import dataclass

from nodeguard.kube.api import Object
from nodeguard.remediation import marks
from nodeguard.remediation.moments import moment
from nodeguard.remediation.owners import How

VERSION = 1
_MOST_NODES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """One restart. Times are Unix seconds."""

    id: str
    nodes: tuple[str, ...]
    """Nodes whose faults want it."""
    at: float
    deadline: float
    step: str = "suspended"

    def joined(self, node: str) -> "Restart":
        """The same restart, for one more node."""
        return self if node in self.nodes else dataclasses.replace(self, nodes=(*self.nodes, node))


def is_suspended(owner: Object, how: How) -> bool:
    """Whether the owner is suspended now, by whomever."""
    spec = owner.get("spec") or {}
    if how == "workload":
        return spec.get("active") is False
    holder = spec.get("runPolicy") or {} if how == "run-policy" else spec
    return holder.get("suspend") is True


def restart_of(owner: Object) -> Restart | None:
    """The restart that the loop has begun on this owner; None: it has begun none."""
    metadata = owner.get("metadata") or {}
    label = (metadata.get("labels") or {}).get(marks.RESTART_LABEL)
    if label is None:
        return None
    try:
        document = json.loads((metadata.get("annotations") or {}).get(marks.RESTART) or "{}")
        return Restart(id=label, nodes=tuple(map(str, document["nodes"]))[:_MOST_NODES], at=moment(document["at"]),
                       deadline=moment(document["deadline"]), step=str(document["step"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        # whoever may write Jobs may write this; the label alone proves who suspended it: enough to resume it
        return Restart(id=label, nodes=(), at=0.0, deadline=0.0)


def suspend(owner: Object, how: How, restart: Restart) -> Object:
    """A merge patch that suspends the owner and says why, refused if the owner changed meanwhile."""
    return {**_marks(owner, restart), "spec": _suspend(how, on=True)}


def note(owner: Object, restart: Restart) -> Object:
    """A merge patch that only writes the restart anew, as when another node joins it."""
    return _marks(owner, restart)


def resume(owner: Object, how: How) -> Object:
    """A merge patch that resumes the owner and removes every mark of the restart."""
    return {**_marks(owner, None), "spec": _suspend(how, on=False)}


def unmark(owner: Object) -> Object:
    """A merge patch that removes every mark and nothing else: somebody resumed the owner already."""
    return _marks(owner, None)


def _suspend(how: How, *, on: bool) -> Object:
    if how == "workload":
        return {"active": not on}
    return {"runPolicy": {"suspend": on}} if how == "run-policy" else {"suspend": on}


def _marks(owner: Object, restart: Restart | None) -> Object:
    document = None
    if restart is not None:
        document = json.dumps({"v": VERSION, "nodes": list(restart.nodes), "at": round(restart.at, 3),
                               "deadline": round(restart.deadline, 3), "step": restart.step}, separators=(",", ":"))
    return {"metadata": {"resourceVersion": owner["metadata"]["resourceVersion"],
                         "labels": {marks.RESTART_LABEL: None if restart is None else restart.id},
                         "annotations": {marks.RESTART: document}}}


def failed_ranks(owner: Object, how: How) -> int:
    """Ranks of a plain Job that have failed under ``restartPolicy: Never``: resuming does not end its back-off.

    Measured on 1.36: 9.8 s after one, 19.9 s after two (job controller's back-off of 10 s, doubling).
    """
    if how != "suspend" or owner.get("kind") not in ("Job", None):
        return 0
    template = ((owner.get("spec") or {}).get("template") or {}).get("spec") or {}
    return int((owner.get("status") or {}).get("failed") or 0) if template.get("restartPolicy") == "Never" else 0


def doubts(owner: Object, how: How) -> tuple[str, ...]:
    """Why a plain Job may not heal by a restart, in sentences for an Event; empty: nothing seen."""
    spec = owner.get("spec") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    if how != "suspend" or owner.get("kind") not in ("Job", None):
        return ()
    found = []
    if template.get("restartPolicy") == "Never" and int(spec.get("parallelism") or 1) > 1:
        found.append("restartPolicy is Never: a rank that fails by itself holds the whole gang back; use OnFailure "
                     "with a high backoffLimit")
    if spec.get("activeDeadlineSeconds") is not None:
        found.append("activeDeadlineSeconds ends the Job at a fixed time, restarts or not")
    if spec.get("podReplacementPolicy") == "Failed":
        found.append("podReplacementPolicy is Failed: a pod that cannot end keeps its replacement from being made")
    return tuple(found)


def replaces_ending_pods(owner: Object, how: How) -> bool:
    """Whether a new pod is made while the old one is still ending (Job: ``podReplacementPolicy`` other than Failed).

    Owners with fixed pod names never do: the name is taken (training operator, MPI operator, Ray).
    """
    spec = owner.get("spec") or {}
    return how == "suspend" and owner.get("kind", "Job") == "Job" and spec.get("podReplacementPolicy") != "Failed"
