"""An agent's token can mark its own Node and do nothing else, by the shipped manifests on a real API server."""

from __future__ import annotations

import contextlib
import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from .agent_nodes import FAULTS, NodeStates, events_of, own_taints, status
from .agents import RESET_DONE, RESET_DUE, TIMEOUT_WORDS, Rig, eventually, xid_line
from .controlplane.admin import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Admin, ApiError, Object
from .controlplane.kubelet import FakeKubelet
from .forbidden import (
    EVENTS,
    FORBIDDEN,
    HUMAN_TAINT,
    LEASES,
    MINE,
    MINE_STATUS,
    ONLY_CONDITIONS,
    ONLY_TAINTS,
    OTHERS_CONDITION,
    OTHERS_TAINT,
    OWN,
    OWN_CONDITION,
    conditions,
    labels,
    new_style_event,
    notes,
    taints,
)
from .manifests import ACCOUNT, NAMESPACE, agent_token, apply, remove, wait_in_force, without

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .controlplane.cluster import Cluster

DRY = "?dryRun=All"


class Confined:
    """Two nodes under the shipped policy, and the agent of the first."""

    def __init__(self, cluster: Cluster, node: str, other: str) -> None:
        self.cluster, self.admin, self.node, self.other = cluster, cluster.admin, node, other
        self.agent = cluster.with_token(agent_token(cluster, node))

    def fill(self, text: str) -> str:
        """A path with this test's names."""
        return text.format(node=self.node, other=self.other)

    def taints(self) -> list[Object]:
        """The taints of its Node now."""
        return list(self.admin.get(f"/api/v1/nodes/{self.node}")["spec"].get("taints", ()))


@pytest.fixture(scope="module")
def confined(control_plane: Cluster) -> Iterator[Confined]:
    """Everything of the manifest but the DaemonSet, in force; one Node with other people's words on it."""
    parts = without("DaemonSet")
    apply(control_plane.admin, parts)
    names = [f"e2e-{uuid.uuid4().hex[:10]}" for _ in range(2)]
    kubelets = [FakeKubelet(name, control_plane.as_node(name)) for name in names]
    with kubelets[0], kubelets[1]:
        for name in names:
            control_plane.admin.wait_for(f"/api/v1/nodes/{name}", lambda node: not node["spec"].get("taints"))
        _decorate(control_plane.admin, names[0])
        wait_in_force(control_plane, names[0])
        yield Confined(control_plane, *names)
    for name in names:
        control_plane.admin.patch(f"/api/v1/nodes/{name}", {"metadata": {"finalizers": None}})
        control_plane.admin.delete(f"/api/v1/nodes/{name}")
    remove(control_plane.admin, parts)


def _decorate(admin: Admin, node: str) -> None:
    path = f"/api/v1/nodes/{node}"
    metadata = {"labels": {"pool": "a"}, "annotations": {"example.com/owner": "team"},
                "finalizers": ["example.com/hold"]}
    admin.patch(path, {"metadata": metadata, "spec": {"taints": [OTHERS_TAINT]}})
    admin.patch(f"{path}/status", {"status": {"conditions": [OTHERS_CONDITION]}}, STRATEGIC_PATCH)


def refused(api: Admin, method: str, path: str, body: object, content_type: str = MERGE_PATCH) -> str:
    """The sentence with which the policy refuses; AssertionError when it lets pass, or somebody else refuses."""
    with pytest.raises(ApiError) as caught:
        api.request(method, path, body, content_type)
    assert "ValidatingAdmissionPolicy 'nodeguard-agent-" in caught.value.message, caught.value
    return caught.value.message.partition("denied request: ")[2]


@pytest.mark.parametrize("deed", FORBIDDEN)
def test_a_write_that_is_not_its_own_is_refused(confined: Confined, deed: str) -> None:
    """The policy refuses it, with a sentence that says what the agent may do."""
    path, body, said = FORBIDDEN[deed]
    _ensure_lease(confined.admin, confined.other)
    kind = STRATEGIC_PATCH if path.endswith("/status") else MERGE_PATCH
    assert said in refused(confined.agent, "PATCH", confined.fill(path), body, kind)


def test_a_doubled_condition_is_refused(confined: Confined) -> None:
    """A JSON patch cannot put a second condition of somebody's type into the list, which a merge would hide."""
    second = [{"op": "add", "path": "/status/conditions/0", "value": {**OTHERS_CONDITION, "status": "True"}}]
    said = refused(confined.agent, "PATCH", confined.fill(MINE_STATUS), second, JSON_PATCH)
    assert ONLY_CONDITIONS in said


@pytest.mark.parametrize(("namespace", "about"), [
    ("default", {"apiVersion": "v1", "kind": "Node", "name": "another"}),
    ("default", {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default"}),
    ("default", {"apiVersion": "v1", "kind": "Node"}),
    ("default", {"apiVersion": "example.com/v1", "kind": "Node", "name": "{node}"}),
])
def test_events_about_others_are_refused(confined: Confined, namespace: str, about: dict[str, str]) -> None:
    """It tells of its own Node only."""
    about = {key: confined.fill(word) for key, word in about.items()}
    body = {"metadata": {"name": f"e2e-{uuid.uuid4().hex}"}, "involvedObject": about, "reason": "X", "message": "x"}
    said = refused(confined.agent, "POST", EVENTS, body, "application/json")
    assert said.endswith(f"of node {confined.node} may only tell of that Node")


def test_a_lease_of_another_name_cannot_be_created(confined: Confined) -> None:
    """Neither by name nor by a generated one."""
    for metadata in ({"name": "nodeguard-remediate"}, {"generateName": confined.node}):
        said = refused(confined.agent, "POST", LEASES, {"metadata": metadata}, "application/json")
        assert said.endswith(f"may only write the Lease nodeguard/{confined.node}")


def test_a_token_of_no_node_may_write_nothing(confined: Confined) -> None:
    """The service account's plain token, as a leaked one, or as Kubernetes before 1.32 makes them."""
    api = confined.cluster.with_token(confined.cluster.token(NAMESPACE, ACCOUNT))
    event = {"metadata": {"name": "e"}, "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": confined.node}}
    said = {
        refused(api, "PATCH", confined.fill(MINE), taints(OTHERS_TAINT, OWN)),
        refused(api, "PATCH", confined.fill(MINE_STATUS), conditions(OWN_CONDITION), STRATEGIC_PATCH),
        refused(api, "POST", LEASES, {"metadata": {"name": confined.node}}, "application/json"),
        refused(api, "POST", EVENTS, event, "application/json"),
    }
    (sentence,) = said
    assert sentence.startswith("the nodeguard agent's token says no node")


def test_what_rbac_never_grants(confined: Confined) -> None:
    """No eviction, no pods, no Nodes made or deleted, no Secrets, no other ConfigMap."""
    pod = "/api/v1/namespaces/default/pods"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "default"}}
    named = {"metadata": {"name": "n"}}
    deeds: list[tuple[str, str, object]] = [
        ("POST", f"{pod}/p/eviction", eviction), ("DELETE", f"{pod}/p", None), ("POST", pod, named),
        ("GET", pod, None), ("DELETE", confined.fill(MINE), None), ("POST", "/api/v1/nodes", named),
        ("GET", "/api/v1/namespaces/default/secrets", None), ("DELETE", f"{LEASES}/{confined.node}", None),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/nodeguard-overrides", None),
        ("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token", {"spec": {}}),
    ]
    for method, path, body in deeds:
        with pytest.raises(ApiError, match=r"^403: .*cannot") as caught:
            confined.agent.request(method, path, body)
        assert "ValidatingAdmissionPolicy" not in caught.value.message


def test_the_policy_holds_where_rbac_was_widened(confined: Confined) -> None:
    """An operator who makes the agent cluster-admin does not lift the confinement."""
    admin, agent, name = confined.admin, confined.agent, f"e2e-{uuid.uuid4().hex[:10]}"
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    who = [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": ACCOUNT}]
    admin.create(bindings, {"metadata": {"name": name}, "roleRef": role, "subjects": who})
    try:
        eventually(lambda: _can(agent, "/api/v1/namespaces/default/secrets"), "the wider right")
        only_change = "may only change its Node, neither create nor delete one nor connect to it"
        assert only_change in refused(agent, "DELETE", confined.fill(MINE) + DRY, None)
        assert only_change in refused(agent, "DELETE", "/api/v1/nodes" + DRY, None)
        new = {"metadata": {"name": "n"}}
        assert only_change in refused(agent, "POST", "/api/v1/nodes" + DRY, new, "application/json")
        assert only_change in refused(agent, "GET", confined.fill(MINE) + "/proxy/healthz", None)
        assert "may only write the Lease" in refused(agent, "DELETE", f"{LEASES}/{confined.other}" + DRY, None)
        elsewhere = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{confined.node}"
        assert "may only write the Lease nodeguard/" in refused(agent, "PATCH", elsewhere, {"spec": {}})
        events = "/apis/events.k8s.io/v1/namespaces/default/events" + DRY
        assert "may only tell of that Node" in refused(agent, "POST", events, new_style_event(), "application/json")
    finally:
        admin.delete(f"{bindings}/{name}")


def test_a_pods_token_works(confined: Confined) -> None:
    """A token bound to a pod on the node, as the DaemonSet's pod has it, may write what is its own."""
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    spec = {"serviceAccountName": ACCOUNT, "nodeName": confined.node, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "agent", "image": "registry.invalid/none"}]}
    uid = confined.admin.create(pods, {"metadata": {"name": "agent"}, "spec": spec})["metadata"]["uid"]
    request = {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "agent", "uid": uid}}}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    api = confined.cluster.with_token(confined.admin.create(path, request)["status"]["token"])
    told = {**notes({FAULTS: "{}"}), **conditions(OWN_CONDITION)}
    api.patch(confined.fill(MINE_STATUS) + DRY, told, STRATEGIC_PATCH)
    api.patch(confined.fill(MINE) + DRY, taints(*confined.taints(), OWN))
    assert "may not write node" in refused(api, "PATCH", f"/api/v1/nodes/{confined.other}", taints(OWN))
    confined.admin.delete(f"{pods}/agent", grace=0)


def test_own_writes_pass(confined: Confined) -> None:
    """Its conditions, annotation, taint, Lease and Events, added, changed and removed."""
    agent, mine, mine_status = confined.agent, confined.fill(MINE), confined.fill(MINE_STATUS)
    for told in ({**OWN_CONDITION}, {**OWN_CONDITION, "status": "False"}, {"type": "GpuLost", "$patch": "delete"}):
        agent.patch(mine_status, {**notes({FAULTS: str(told)}), **conditions(told)}, STRATEGIC_PATCH)
    agent.patch(mine_status, notes({FAULTS: None}), STRATEGIC_PATCH)
    for value in ("GpuLost", "NvlinkDown"):
        agent.patch(mine, taints(OTHERS_TAINT, {**OWN, "value": value}))
    agent.patch(mine, taints({**OWN, "value": "GpuLost"}, OTHERS_TAINT))
    agent.patch(mine, taints(OTHERS_TAINT))
    with contextlib.suppress(ApiError):
        confined.admin.delete(f"{LEASES}/{confined.node}")  # of an agent that ran here before
    agent.create(LEASES, {"metadata": {"name": confined.node}, "spec": {"holderIdentity": confined.node}})
    agent.patch(f"{LEASES}/{confined.node}", {"spec": {"leaseDurationSeconds": 6}})
    about = {"apiVersion": "v1", "kind": "Node", "name": confined.node, "uid": confined.node}
    agent.create(EVENTS, {"metadata": {"name": f"{confined.node}.1"}, "involvedObject": about, "reason": "X"})
    confined.admin.delete(f"{LEASES}/{confined.node}")


def test_a_taint_by_hand_under_its_key_stays(confined: Confined) -> None:
    """A person's taint with nodeguard's key is somebody else's: beside it nothing of the agent's is hindered."""
    confined.admin.patch(confined.fill(MINE), taints(OTHERS_TAINT, HUMAN_TAINT))
    assert ONLY_TAINTS in refused(confined.agent, "PATCH", confined.fill(MINE), taints(OTHERS_TAINT))
    confined.agent.patch(confined.fill(MINE_STATUS) + DRY, conditions(OWN_CONDITION), STRATEGIC_PATCH)
    confined.admin.patch(confined.fill(MINE), taints(OTHERS_TAINT))


def add_own_taint(agent: Admin, path: str) -> None:
    """As the agent does: with the version that was read, and again when the node lifecycle controller was first."""
    for _ in range(20):
        read = agent.get(path)
        wanted = taints(*read["spec"]["taints"], OWN)
        try:
            agent.patch(path, {**wanted, "metadata": {"resourceVersion": read["metadata"]["resourceVersion"]}})
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
        else:
            return
    raise AssertionError("twenty conflicts in a row")


def test_a_full_node_is_judged_within_the_limits(confined: Confined) -> None:
    """Hundreds of labels, taints, conditions and images do not use up what the API server lets CEL cost."""
    admin, node = confined.admin, f"e2e-{uuid.uuid4().hex[:10]}"
    many = [{**OTHERS_TAINT, "key": f"example.com/taint-{number}"} for number in range(150)]
    metadata = {"name": node, "labels": {f"example.com/label-{number}": "x" * 60 for number in range(300)},
                "annotations": {f"example.com/note-{number}": "x" * 4000 for number in range(60)}}
    admin.create("/api/v1/nodes", {"metadata": metadata, "spec": {"taints": many}})
    path = f"/api/v1/nodes/{node}"
    found = [{**OTHERS_CONDITION, "type": f"Other{number}"} for number in range(80)]
    images = [{"names": [f"registry.example/{'x' * 60}/{number}@sha256:{'0' * 64}"] * 2, "sizeBytes": number}
              for number in range(500)]
    admin.patch(f"{path}/status", {"status": {"conditions": found, "images": images}}, STRATEGIC_PATCH)
    agent = confined.cluster.with_token(agent_token(confined.cluster, node))
    agent.patch(f"{path}/status", {**notes({FAULTS: "x" * 8192}), **conditions(OWN_CONDITION)}, STRATEGIC_PATCH)
    add_own_taint(agent, path)
    assert "may not change status.images" in refused(
        agent, "PATCH", f"{path}/status", {"status": {"images": images[1:]}}, STRATEGIC_PATCH)
    admin.delete(path)


def test_nobody_else_is_confined(confined: Confined) -> None:
    """An administrator, the node's own identity and another service account of the namespace are not judged."""
    confined.admin.patch(confined.fill(MINE), labels(e2e="admin"))
    confined.cluster.as_node(confined.node).patch(
        confined.fill(MINE_STATUS), conditions({"type": "Ready", "status": "True", "reason": "x"}), STRATEGIC_PATCH)
    somebody = confined.cluster.with_token(confined.cluster.token("default", "default"))
    with pytest.raises(ApiError) as caught:
        somebody.patch(confined.fill(MINE), labels(a="b"))
    assert "ValidatingAdmissionPolicy" not in caught.value.message


def test_the_agent_itself_opens_and_closes_a_fault(confined: Confined) -> None:
    """A real agent under a token bound to its node is hindered in nothing, and touches nothing of others."""
    config = confined.cluster.kubeconfig_for_token(agent_token(confined.cluster, confined.node))
    with Rig(confined.node, config) as rig, NodeStates(confined.admin, confined.node) as states:
        agent = rig.start()
        states.wait_now(lambda node: status(node, "GpuDriverFault") == "False", "every rule was judged", 20)
        slot = rig.hardware.slots[3]
        rig.hardware.log.write(xid_line(slot, 109, TIMEOUT_WORDS))
        node = states.wait_now(own_taints, "the taint")
        assert status(node, "GpuDriverFault") == "True"
        assert node["spec"]["taints"][0] == OTHERS_TAINT
        rig.hardware.log.write(xid_line(slot, 154, RESET_DUE))
        states.wait_now(lambda node: status(node, "GpuRecoveryRequired") == "True", "the reset is due")
        rig.hardware.log.write(xid_line(slot, 154, RESET_DONE))
        node = states.wait_now(lambda node: not own_taints(node), "the taint goes")
        assert node["spec"]["taints"] == [OTHERS_TAINT]
        eventually(lambda: len(events_of(confined.admin, confined.node)) >= 2, "Events")
        agent.end()
        assert "forbidden" not in agent.output()


def _ensure_lease(admin: Admin, name: str) -> None:
    try:
        admin.create(LEASES, {"metadata": {"name": name}})
    except ApiError as error:
        if error.status != 409:
            raise


def _can(api: Admin, path: str) -> bool:
    try:
        api.get(path)
    except ApiError:
        return False
    return True
