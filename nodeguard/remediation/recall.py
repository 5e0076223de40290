"""What a loop that begins to lead must know of the past: restarts whose nodes were given back, or are no more."""

from nodeguard.kube.api import Api
from nodeguard.model.errors import ApiError
from nodeguard.remediation.incidents_ring import Ring
from nodeguard.remediation.record import Restarted


def recall(api: Api, namespace: str) -> tuple[Restarted, ...]:
    """Every restart that the ring of incidents tells of; none where it cannot be read now."""
    ring = Ring(api, namespace)
    try:
        ring.read()
    except ApiError:
        return ()
    return tuple(restart for incident in ring for restart in incident.restarts.values())
