"""What the Job controller makes of a Job, and the scheduler of a pod: the few rules that the demo needs. Pure.

An imitation: Indexed Jobs only, no back-off, no completion, no priorities, no affinity. What it decides for a
suspended Job is as in kubernetes/pkg/controller/job; where a pod fits, as in kubernetes/pkg/scheduler (taints,
nodeSelector, resources).
"""

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from nodeguard.kube.api import Object
from nodeguard.remediation.views import pod_view

INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"

_FINISHED = ("Succeeded", "Failed")
_CLOSING = ("NoSchedule", "NoExecute")


def owner_uid(pod: Object) -> str:
    """UID of the Job that controls the pod; empty for none."""
    refs = pod["metadata"].get("ownerReferences") or ()
    return next((str(ref["uid"]) for ref in refs if ref.get("controller") and ref.get("kind") == "Job"), "")


def alive(pod: Object) -> bool:
    """Whether the pod neither ends nor has ended."""
    return "deletionTimestamp" not in pod["metadata"] and pod.get("status", {}).get("phase") not in _FINISHED


def missing(job: Object, pods: Iterable[Object]) -> list[Object]:
    """The pods that the Job lacks, to be created; a suspended one lacks none."""
    spec = job["spec"]
    if spec.get("suspend"):
        return []
    there = {pod["metadata"]["annotations"][INDEX] for pod in pods if alive(pod)}
    return [_rank(job, index) for index in map(str, range(int(spec.get("completions") or 1))) if index not in there]


def surplus(job: Object | None, pods: Iterable[Object]) -> list[Object]:
    """The pods that must go: all that live while the Job is suspended, or (None) because it is gone."""
    if job is not None and not job["spec"].get("suspend"):
        return []
    return [pod for pod in pods if alive(pod)]


def status(job: Object, pods: Sequence[Object]) -> Object:
    """The Job's status, as a merge patch of it."""
    living = [pod for pod in pods if alive(pod)]
    word = "True" if job["spec"].get("suspend") else "False"
    return {"active": len(living), "ready": sum(map(_is_ready, living)),
            "conditions": [{"type": "Suspended", "status": word}]}


def place(pod: Object, nodes: Iterable[Object], pods: Iterable[Object]) -> str | None:
    """The emptiest node that takes the pod; None: none does."""
    pods = tuple(pods)
    free = {node["metadata"]["name"]: room for node in nodes
            if _open(node, pod) and (room := _room(node, pods, pod)) is not None}
    return max(sorted(free), key=lambda name: free[name], default=None)


def _rank(job: Object, index: str) -> Object:
    metadata, template = job["metadata"], job["spec"]["template"]
    given = template.get("metadata") or {}
    return {
        "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
        "metadata": {
            "name": f"{metadata['name']}-{index}-{secrets.token_hex(3)[:5]}", "namespace": metadata["namespace"],
            "labels": {**(given.get("labels") or {}), JOB_NAME: metadata["name"]},
            "annotations": {**(given.get("annotations") or {}), INDEX: index},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"],
                                 "uid": metadata["uid"], "controller": True, "blockOwnerDeletion": True}]}}


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _open(node: Object, pod: Object) -> bool:
    spec = node.get("spec") or {}
    closing = [taint for taint in spec.get("taints") or () if taint.get("effect") in _CLOSING]
    labels, wanted = node["metadata"].get("labels") or {}, pod["spec"].get("nodeSelector") or {}
    return (_is_ready(node) and not spec.get("unschedulable") and wanted.items() <= labels.items()
            and all(any(_tolerates(one, taint) for one in pod["spec"].get("tolerations") or ()) for taint in closing))


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, taint["effect"]) or toleration.get("key") not in (None, taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _room(node: Object, pods: Iterable[Object], pod: Object) -> int | None:
    """Extended resources that stay free on the node once it has the pod; None: there are not enough."""
    used: Counter[str] = Counter(_wants(pod))
    for one in pods:
        if one["spec"].get("nodeName") == node["metadata"]["name"] and one["status"].get("phase") not in _FINISHED:
            used.update(_wants(one))
    allocatable = node.get("status", {}).get("allocatable") or {}
    left = {name: int(allocatable.get(name, 0)) - amount for name, amount in used.items()}
    return None if any(amount < 0 for amount in left.values()) else sum(left.values())


def _wants(pod: Object) -> Mapping[str, int]:
    view = pod_view(pod)
    return {} if view is None else view.resources
