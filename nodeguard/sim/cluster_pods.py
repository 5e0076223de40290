"""What a kubelet writes into a pod's status (core/v1 PodStatus). Pure."""

from collections.abc import Callable
from datetime import UTC, datetime

from nodeguard.kube.api import Object

POD_IP = "10.244.0.1"
SIGTERM_EXIT = 143
"""128 + SIGTERM, as a container's runtime tells it."""


def timestamp() -> str:
    """Now, as the API writes times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_path(pod: Object) -> str:
    """Where the pod is in the API."""
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def running(pod: Object) -> Object:
    """The status of a pod whose containers all run."""
    now = timestamp()
    states = _containers(pod, lambda _: {"running": {"startedAt": now}}, ready=True)
    return {
        "phase": "Running", "startTime": pod["status"].get("startTime", now), "podIP": POD_IP,
        "podIPs": [{"ip": POD_IP}], "hostIP": "127.0.0.1", "conditions": _conditions("True", now),
        "containerStatuses": states,
    }


def ended(pod: Object, exit_code: int) -> Object:
    """The status of a pod whose containers have all ended for good."""
    now = timestamp()
    return {
        "phase": "Succeeded" if exit_code == 0 else "Failed", "conditions": _conditions("False", now),
        "containerStatuses": _containers(
            pod, lambda name: {"terminated": _terminated(pod, name, exit_code, now)}, ready=False),
    }


def restarted(pod: Object, exit_code: int) -> Object:
    """The status of a pod whose containers ended and were started again in place."""
    now = timestamp()
    states = _containers(pod, lambda _: {"running": {"startedAt": now}}, ready=True)
    for state in states:
        state["restartCount"] += 1
        state["lastState"] = {"terminated": _terminated(pod, state["name"], exit_code, now)}
    return {"phase": "Running", "containerStatuses": states}


def restarts_in_place(pod: Object, exit_code: int) -> bool:
    """Whether the kubelet starts the containers again after ``exit_code`` (core/v1 PodSpec.restartPolicy)."""
    policy = pod["spec"].get("restartPolicy", "Always")
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _containers(pod: Object, state: Callable[[str], Object], *, ready: bool) -> list[Object]:
    return [
        {
            "name": container["name"], "image": container["image"], "imageID": "",
            "containerID": f"fake://{pod['metadata']['uid']}/{container['name']}", "ready": ready, "started": ready,
            "restartCount": _status(pod, container["name"]).get("restartCount", 0), "state": state(container["name"]),
        }
        for container in pod["spec"]["containers"]
    ]


def _terminated(pod: Object, name: str, exit_code: int, now: str) -> Object:
    started = _status(pod, name).get("state", {}).get("running", {}).get("startedAt", now)
    return {"exitCode": exit_code, "reason": "Completed" if exit_code == 0 else "Error", "startedAt": started,
            "finishedAt": now}


def _status(pod: Object, name: str) -> Object:
    for status in pod["status"].get("containerStatuses", []):
        if status["name"] == name:
            found: Object = status
            return found
    return {}


def _conditions(ready: str, now: str) -> list[Object]:
    types = {"Initialized": "True", "ContainersReady": ready, "Ready": ready}
    return [{"type": kind, "status": status, "lastTransitionTime": now} for kind, status in types.items()]
