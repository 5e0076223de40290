"""Evictions, one pod at a time, through the Eviction API: disruption budgets and the pod's own grace are honoured."""

from dataclasses import dataclass
from typing import Literal

from nodeguard.kube.api import Api, Object
from nodeguard.model.errors import ApiConflict, ApiError, ApiNotFound, ApiRefused
from nodeguard.remediation.views import PodView

Answer = Literal["sent", "gone", "blocked", "failed", "refused"]

BLOCKED = 429
"""What the Eviction API answers while a disruption budget allows no disruption (policy/v1 Eviction)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one try."""

    answer: Answer
    """``sent``: it will leave. ``gone``: it is not there, or another pod has its name. ``blocked``: a disruption budget
    says not now. ``failed``: try again. ``refused``: it will be refused again."""
    retry_after: float | None = None
    reason: str = ""


def evict(api: Api, pod: PodView) -> Outcome:
    """Ask for the pod's eviction. The UID is a precondition: a pod that took over the name is not touched."""
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
    try:
        api.post(path, eviction(pod))
    except (ApiNotFound, ApiConflict):
        return Outcome("gone")
    except ApiRefused as error:
        return Outcome("refused", reason=str(error))
    except ApiError as error:
        answer: Answer = "blocked" if error.status == BLOCKED else "failed"
        return Outcome(answer, error.retry_after, str(error))
    return Outcome("sent")


def eviction(pod: PodView) -> Object:
    """The Eviction object."""
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}}}
