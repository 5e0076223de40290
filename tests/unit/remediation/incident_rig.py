"""What the tests of incidents share: happenings made by hand, a loop's happenings, and what came to be written."""

from nodeguard.kube.fake import FakeApi
from nodeguard.remediation.happenings import Happening
from nodeguard.remediation.incidents import Incidents
from nodeguard.remediation.incidents_entry import Incident
from nodeguard.remediation.incidents_ring import incidents_in, path
from nodeguard.remediation.record import Record
from nodeguard.remediation.views import node_view

from .cluster import Cluster
from .rig import Rig

PATH = path("nodeguard")


def incidents_of(rig: Rig) -> Incidents:
    """Fed with everything that the loop has told."""
    incidents = Incidents(rig.cluster, rig.clock, "nodeguard")
    for told in rig.told:
        incidents.take(told)
    return incidents


def written(api: FakeApi) -> list[Incident]:
    """What the ConfigMap tells."""
    return list(incidents_in(api.read(PATH)).values())


def finished(rig: Rig) -> Incident:
    """The only incident, as it was written."""
    incidents_of(rig).turn()
    (one,) = written(rig.cluster)
    return one


def happening(incident_id: str, *, at: float, what: str = "begun", node: str = "a", text: str = "",
              began: float | None = None) -> Happening:
    """Something about an incident of a node."""
    cluster = Cluster()
    cluster.node(node)
    view = node_view(cluster.nodes()[node])
    stamps = {"quarantined": at if began is None else began}
    work = Record(state="quarantined", incident=incident_id, since=at, stamps=stamps)
    return Happening(what=what, at=at, node=view, record=work, text=text)  # type: ignore[arg-type] # a test's word
