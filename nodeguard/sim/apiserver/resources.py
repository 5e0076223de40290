"""The table of resources that the embedded server stores, and how a URL names one."""

from collections.abc import Iterable
from dataclasses import dataclass

from nodeguard.sim.apiserver.errors import Refusal


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object. A server takes any table of them."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = False
    """Whether ``status`` is a subresource: then the object itself cannot change it, nor it the object's spec."""
    needs_version: bool = False
    """Whether an update without a resourceVersion is refused (Kubernetes: Leases)."""

    @property
    def api_version(self) -> str:
        """As in an object's ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def title(self) -> str:
        """As messages name it: ``nodes``, ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


RESOURCES = (
    Resource("", "v1", "nodes", "Node", namespaced=False, has_status=True),
    Resource("", "v1", "namespaces", "Namespace", namespaced=False, has_status=True),
    Resource("", "v1", "pods", "Pod", has_status=True),
    Resource("", "v1", "events", "Event"),
    Resource("", "v1", "configmaps", "ConfigMap"),
    Resource("", "v1", "serviceaccounts", "ServiceAccount"),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", needs_version=True),
    Resource("batch", "v1", "jobs", "Job", has_status=True),
    Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", has_status=True),
    Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", has_status=True),
)


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL names: a collection (no name), an object, or a subresource of one."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Table:
    """Finds the target of a path, and describes itself to clients that ask (discovery)."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._resources = {(r.group, r.version, r.plural): r for r in resources}

    def find(self, path: str) -> Target:
        """The target of a path. Raises :class:`Refusal` 404 when the table has no such resource."""
        group, version, rest = _split(path)
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in {"status", "finalize"}:
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = (*rest, "", "", "")[:3]
        resource = self._resources.get((group, version, plural))
        if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
            raise _unknown()
        if resource.namespaced and name and not namespace:
            raise _unknown()
        return Target(resource, namespace, name, subresource)

    def discovery(self, path: str) -> dict[str, object] | None:
        """The answer to a discovery path (``/api``, ``/apis``, ``/api/v1``, ``/apis/GROUP[/VERSION]``), else None."""
        parts = path.strip("/").split("/")
        if parts == ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        if parts == ["apis"]:
            groups = sorted({(group, version) for group, version, _ in self._resources if group})
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*each) for each in groups]}
        if parts[0] == "apis" and len(parts) == 2:
            return self._group_named(parts[1])
        if (parts[0], len(parts)) in {("api", 2), ("apis", 3)}:
            return self._resource_list("" if parts[0] == "api" else parts[1], parts[-1])
        return None

    def _group_named(self, name: str) -> dict[str, object]:
        versions = sorted({version for group, version, _ in self._resources if group == name})
        if not versions:
            raise _unknown()
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions[-1])}

    def _resource_list(self, group: str, version: str) -> dict[str, object]:
        found = [r for r in self._resources.values() if (r.group, r.version) == (group, version)]
        if not found:
            raise _unknown()
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        resources = [
            {"name": r.plural, "singularName": r.kind.lower(), "namespaced": r.namespaced, "kind": r.kind,
             "verbs": verbs}
            for r in found
        ]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": found[0].api_version,
                "resources": resources}


def _split(path: str) -> tuple[str, str, list[str]]:
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        return "", parts[1], parts[2:]
    if parts[0] == "apis" and len(parts) > 3:
        return parts[1], parts[2], parts[3:]
    raise _unknown()


def _unknown() -> Refusal:
    return Refusal(404, "the server could not find the requested resource")


def _group(group: str, version: str) -> dict[str, object]:
    preferred = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [preferred], "preferredVersion": preferred}
