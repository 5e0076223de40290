"""What tests of gangs share: a Job over some nodes, and how often it was suspended."""

from typing import Any

from .rig import Rig

JOB = "/apis/batch/v1/namespaces/training/jobs/llm"
REPLICAS = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs-web"}


def gang(rig: Rig, *nodes: str, spare: tuple[str, ...] = ("spare",), **spec: Any) -> Rig:
    """A Job with a rank on each node, and a loop that has seen it all."""
    for name in (*nodes, *spare):
        rig.cluster.node(name)
        rig.cluster.fault(name)
    rig.cluster.job("llm", nodes, **spec)
    return rig.run()


def suspends(rig: Rig) -> int:
    """How often the Job was suspended."""
    return sum(1 for one in rig.cluster.writes(JOB) if (one.body or {}).get("spec", {}).get("suspend") is True)


def is_running(rig: Rig) -> bool:
    """Whether the Job is neither suspended nor marked."""
    job = rig.cluster.read(JOB)
    return (not job["spec"].get("suspend") and job["metadata"]["labels"] == {}
            and not job["metadata"].get("annotations"))
