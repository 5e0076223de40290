"""What doctor asks the API server: is this the Node, may the agent do its work, and is it confined to this Node."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from nodeguard.app.doctor_finding import Finding, Verdict
from nodeguard.kube.api import Api, Object
from nodeguard.kube.brake import CONFIG_MAP
from nodeguard.model.errors import ApiError, ApiNotFound, ApiRefused

POLICIES = ("nodeguard-agent-nodes", "nodeguard-agent-leases", "nodeguard-agent-events")
"""Admission policies that the shipped manifest installs, each with a binding of the same name."""

_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_NODE_CLAIM = "authentication.kubernetes.io/node-name"
_AGENT = ("system:serviceaccount:", ":nodeguard-agent")
"""How the name of the agent's account begins and ends: who is held to the policies."""
_TIMEOUT = 5.0
_APPLY = "apply deploy/daemonset.yaml"


@dataclass(frozen=True, slots=True)
class Right:
    """Something the agent does, and what does not work where it may not."""

    verb: str
    resource: str
    without: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    verdict: Verdict = "blind"

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        kind = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {kind}{f' {self.name}' if self.name else ''}{where}"

    def attributes(self) -> Object:
        """As a SelfSubjectAccessReview takes it."""
        return {"verb": self.verb, "group": self.group, "resource": self.resource, "subresource": self.subresource,
                "namespace": self.namespace, "name": self.name}


def rights(node: str, namespace: str) -> tuple[Right, ...]:
    """Everything that the agent of a node asks of the API server."""
    leases, silent = "coordination.k8s.io", "the agent looks dead to the remediation loop"
    return (
        Right("get", "nodes", "the Node's UID and what it says already stay unknown", name=node),
        Right("watch", "nodes", "what people say through annotations is not heard", name=node),
        Right("patch", "nodes", "no taint can be set", name=node),
        Right("patch", "nodes", "no condition and no annotation can be written", subresource="status", name=node),
        Right("create", "leases", silent, leases, namespace=namespace),
        Right("patch", "leases", silent, leases, namespace=namespace, name=node),
        Right("list", "nodes", "the number of nodes is unknown, so its Lease is renewed as in a small cluster",
              verdict="warning"),
        Right("get", "configmaps", "the brake is not heard", namespace=namespace, name=CONFIG_MAP, verdict="warning"),
        Right("create", "events", "no Event tells what changed", namespace="default", verdict="warning"),
    )


def access(api: Api, node: str, namespace: str) -> Iterator[Finding]:
    """What the agent may not do."""
    wanted = rights(node, namespace)
    missing = 0
    for right in wanted:
        try:
            review = api.post(_ACCESS_REVIEWS, {
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": right.attributes()}}, timeout=_TIMEOUT)
        except ApiError as error:
            yield Finding("rights", "skipped", f"the API server does not say what is allowed: {error}")
            return
        if not (review.get("status") or {}).get("allowed"):
            missing += 1
            yield Finding("rights", right.verdict, f"not allowed: {right}; {right.without}", _APPLY)
    if not missing:
        yield Finding("rights", "ok", f"everything that the agent does is allowed ({len(wanted)} rights)")


def itself(api: Api, node: str) -> tuple[list[Finding], str | None]:
    """Whose token this is, and whether it says this node; with the API server's time (RFC 3339) where it tells it."""
    try:
        review = api.post(_SELF_REVIEWS, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
                          timeout=_TIMEOUT)
    except ApiError as error:
        return [Finding("token", "skipped", f"the API server does not say whose token this is: {error}")], None
    at = (review.get("metadata") or {}).get("creationTimestamp")
    return [_token((review.get("status") or {}).get("userInfo") or {}, node)], at if isinstance(at, str) else None


def _token(user: Object, node: str) -> Finding:
    name = str(user.get("username", ""))
    claimed = next(iter((user.get("extra") or {}).get(_NODE_CLAIM) or ()), None)
    if claimed == node:
        return Finding("token", "ok", f"it is {name}'s, bound to this node")
    if claimed is not None:
        return Finding("token", "blind", f"it is {name}'s and bound to node {claimed}, not to {node}: every write is "
                       "refused", "check --node-name (in a pod: spec.nodeName)")
    if name.startswith(_AGENT[0]) and name.endswith(_AGENT[1]):
        return Finding("token", "blind", f"it is {name}'s and says no node: the admission policy refuses every write",
                       "use the token of the agent's own pod (Kubernetes 1.32 or newer)")
    return Finding("token", "warning", f"it is {name or 'nobody'}'s, who is not confined to this node",
                   "the agent should run under its own service account")


def policies(api: Api) -> Iterator[Finding]:
    """Whether the admission policies are installed, as far as this user may look."""
    missing = []
    for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        for name in POLICIES:
            try:
                api.get(f"{_ADMISSION}/{kind}/{name}", timeout=_TIMEOUT)
            except ApiNotFound:
                missing.append(name)
            except ApiRefused:
                yield Finding("confinement", "skipped", "this user may not look at admission policies; the agent need "
                              "not", f"as an administrator: kubectl get {kind}")
                return
            except ApiError as error:
                yield Finding("confinement", "skipped", f"the admission policies cannot be read: {error}")
                return
    if missing:
        yield Finding("confinement", "warning", f"not installed, or not bound: {', '.join(sorted(set(missing)))}; a "
                      "token that leaks from one node can mark the others", _APPLY)
    else:
        yield Finding("confinement", "ok", "the admission policies are installed and bound")


def own_node(found: Object | ApiError, name: str) -> Finding:
    """Whether the API server answers and has this Node; ``found``: the Node, or why it cannot be read."""
    if isinstance(found, ApiNotFound):
        return Finding("API server", "blind", f"there is no Node {name}", "check --node-name (kubectl get nodes)")
    if isinstance(found, ApiRefused):
        return Finding("API server", "blind", f"it answers and refuses: {found}", f"{_APPLY}, or give another token")
    if isinstance(found, ApiError):
        return Finding("API server", "blind", f"it does not answer: {found}; the log, the metrics and the memory on "
                       "disk work without it", "check the network from this node, and --kubeconfig")
    uid = (found.get("metadata") or {}).get("uid", "unknown")
    return Finding("API server", "ok", f"it answers; Node {name} has UID {uid}")


def skew(at: str | None, wall: Callable[[], float]) -> float | None:
    """Seconds that this machine's wall clock is ahead of the API server's ``at``, to about a second."""
    if at is None:
        return None
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return None if moment.tzinfo is None else wall() - moment.timestamp()
