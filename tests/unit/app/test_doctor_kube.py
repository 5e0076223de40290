"""Doctor at the API server: the Node, the rights, the token, the policies, the time."""

from typing import Any

import pytest

from nodeguard.app import doctor_kube
from nodeguard.app.doctor_finding import Finding
from nodeguard.kube.api import READ_TIMEOUT, Object
from nodeguard.kube.fake import FakeApi
from nodeguard.model.errors import ApiNotFound, ApiRefused, ApiUnavailable

NODE, NS = "gpu-7", "nodeguard"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


class ReviewingApi(FakeApi):
    """Answers reviews, which are stored nowhere: allowed is all but ``denied`` (``verb resource/subresource``)."""

    def __init__(self, user: Object | None = None, denied: tuple[str, ...] = (), at: str | None = None) -> None:
        super().__init__()
        self.user, self.denied, self.at = user or {}, denied, at
        self.asked: list[dict[str, Any]] = []

    def post(self, path: str, body: Object, timeout: float = READ_TIMEOUT) -> Object:
        if path.endswith("/selfsubjectaccessreviews"):
            attributes = body["spec"]["resourceAttributes"]
            self.asked.append(attributes)
            resource = "/".join(filter(None, (attributes["resource"], attributes["subresource"])))
            return {"status": {"allowed": f"{attributes['verb']} {resource}" not in self.denied}}
        if path.endswith("/selfsubjectreviews"):
            return {"metadata": {"creationTimestamp": self.at}, "status": {"userInfo": self.user}}
        return super().post(path, body, timeout)


def agent(node: str | None = NODE) -> Object:
    extra = {} if node is None else {"authentication.kubernetes.io/node-name": [node]}
    return {"username": "system:serviceaccount:nodeguard:nodeguard-agent", "extra": extra}


def token(user: Object) -> Finding:
    (found,), _ = doctor_kube.itself(ReviewingApi(user), NODE)
    return found


def test_every_right_is_there() -> None:
    """One line; and each is asked for as the manifest grants it."""
    api = ReviewingApi()
    assert [one.verdict for one in doctor_kube.access(api, NODE, NS)] == ["ok"]
    asked = {(one["verb"], one["group"], one["resource"], one["subresource"], one["namespace"], one["name"])
             for one in api.asked}
    assert ("patch", "", "nodes", "status", "", NODE) in asked
    assert ("create", "coordination.k8s.io", "leases", "", NS, "") in asked
    assert ("get", "", "configmaps", "", NS, "nodeguard-brake") in asked
    assert ("create", "", "events", "", "default", "") in asked


def test_missing_rights() -> None:
    """Each with what does not work without it; those that only people miss are warnings."""
    found = list(doctor_kube.access(ReviewingApi(denied=("patch nodes/status", "create events")), NODE, NS))
    assert [(one.verdict, one.says) for one in found] == [
        ("blind", "not allowed: patch nodes/status gpu-7; no condition and no annotation can be written"),
        ("warning", "not allowed: create events in default; no Event tells what changed")]
    assert all(one.do for one in found)


def test_whose_token() -> None:
    """Bound here, bound elsewhere, bound to nothing, a person's."""
    assert [token(user).verdict for user in (agent(), agent("gpu-8"), agent(None), {"username": "admin"}, {})] == [
        "ok", "blind", "blind", "warning", "warning"]
    assert "gpu-8" in token(agent("gpu-8")).says


def test_a_server_without_reviews() -> None:
    """Is not evaluated, and no error."""
    api = FakeApi()
    api.fail("POST", "/apis", ApiNotFound("not found", status=404), times=9)
    assert [one.verdict for one in doctor_kube.access(api, NODE, NS)] == ["skipped"]
    found, at = doctor_kube.itself(api, NODE)
    assert ([one.verdict for one in found], at) == (["skipped"], None)


def test_the_admission_policies() -> None:
    """Installed, missing, without a binding, not for this user's eyes."""
    api = FakeApi()
    for name in doctor_kube.POLICIES:
        api.add(f"{ADMISSION}/validatingadmissionpolicies/{name}", {})
        api.add(f"{ADMISSION}/validatingadmissionpolicybindings/{name}", {})
    assert [one.verdict for one in doctor_kube.policies(api)] == ["ok"]
    api.remove(f"{ADMISSION}/validatingadmissionpolicybindings/nodeguard-agent-leases")
    (found,) = doctor_kube.policies(api)
    assert found.verdict == "warning"
    assert "nodeguard-agent-leases;" in found.says
    api.fail("GET", ADMISSION, ApiRefused("forbidden", status=403))
    assert [one.verdict for one in doctor_kube.policies(api)] == ["skipped"]


@pytest.mark.parametrize(("found", "verdict", "word"), [
    ({"metadata": {"uid": "u1"}}, "ok", "u1"), (ApiNotFound("x", status=404), "blind", "no Node gpu-7"),
    (ApiRefused("x", status=403), "blind", "refuses"), (ApiUnavailable("x"), "blind", "does not answer")])
def test_the_node(found: Object, verdict: str, word: str) -> None:
    """There, not there, not allowed, no answer."""
    told = doctor_kube.own_node(found, NODE)
    assert told.verdict == verdict
    assert word in told.says


def test_the_servers_time() -> None:
    """Comes with the review of the token; what is no time is none."""
    _, at = doctor_kube.itself(ReviewingApi(agent(), at="2026-01-31T12:00:00Z"), NODE)
    assert doctor_kube.skew(at, lambda: 1769860810.0) == 10.0
    assert doctor_kube.skew("yesterday", lambda: 0.0) is None
    assert doctor_kube.skew("2026-01-31T12:00:00", lambda: 0.0) is None
    assert doctor_kube.skew(None, lambda: 0.0) is None
