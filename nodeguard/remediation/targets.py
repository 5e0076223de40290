"""Which pods are to leave a node: those on the faulty devices, else every accelerator pod, and never some others."""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from nodeguard.model.policy import Policy
from nodeguard.remediation.report import Fault
from nodeguard.remediation.views import PodView

Accelerates = Callable[[PodView], bool]
"""Whether a pod holds accelerators."""

_BEFORE_THE_FAULT = 30.0
"""Seconds by which a rank may fail before its fault is told: a program may see a broken GPU before the driver does."""


def leaving(pods: Iterable[PodView], faults: Iterable[Fault], policy: Policy,
            accelerates: Accelerates) -> tuple[PodView, ...]:
    """Of the pods bound to a node, those that its faults ask to leave and those with accelerators that are ending.

    The agent's word counts only for pods that run here: the caller gives no others.
    """
    evicting = [fault for fault in faults if fault.evicts]
    named = frozenset(pod.uid for fault in evicting for pod in fault.pods or ())
    whole_node = any(fault.scope != "device" or fault.pods is None for fault in evicting)
    return tuple(pod for pod in pods if movable(pod, policy) and (
        pod.uid in named or (accelerates(pod) and (pod.deleting or (bool(evicting) and whole_node)))))


def died(pods: Iterable[PodView], faults: Iterable[Fault], policy: Policy,
         accelerates: Accelerates) -> tuple[PodView, ...]:
    """Of the pods bound to a node, those that its faults have killed: failed ranks, whose gangs hang without them.

    A broken GPU usually ends its rank before anybody acts. The agent no longer names a pod whose processes are gone,
    so a device's fault takes every pod of the node that failed since.
    """
    evicting = [fault for fault in faults if fault.evicts]
    since = min((fault.since for fault in evicting), default=float("inf")) - _BEFORE_THE_FAULT
    return tuple(pod for pod in pods if pod.phase == "Failed" and pod.ended >= since and accelerates(pod)
                 and _allowed(pod, policy))


def movable(pod: PodView, policy: Policy) -> bool:
    """Whether the loop may make this pod leave.

    A DaemonSet would put its pod back, a mirror pod is the kubelet's own, and a finished pod holds nothing.
    """
    return not pod.finished and _allowed(pod, policy)


def _allowed(pod: PodView, policy: Policy) -> bool:
    if pod.mirror or pod.of_daemon_set or pod.priority_class in policy.exclude.priority_classes:
        return False
    return not any(fnmatchcase(pod.namespace, pattern) for pattern in policy.exclude.namespaces)
