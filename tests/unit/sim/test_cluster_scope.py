"""What the demo's loop gets to see of a real cluster."""

import threading
from collections.abc import Iterator

import pytest

from nodeguard.kube.client import KubeClient
from nodeguard.sim.apiserver import EmbeddedApiServer
from nodeguard.sim.cluster_scope import LABEL, Scoped


@pytest.fixture
def scoped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scoped]:
    """A scoped client of a server with nodes and Jobs of two owners."""
    with EmbeddedApiServer() as server:
        for name, labels in (("ours", {LABEL: "1"}), ("theirs", {}), ("another-demo", {LABEL: "2"})):
            server.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
            server.create("/apis/batch/v1/namespaces/default/jobs",
                          {"metadata": {"name": name, "labels": {**labels, "nodeguard.io/restart": "r"}}, "spec": {}})
        path = tmp_path_factory.mktemp("scope") / "kubeconfig"
        server.write_kubeconfig(path)
        yield Scoped(KubeClient.from_kubeconfig(path), "1")


def names(items: list[dict[str, dict[str, str]]]) -> list[str]:
    return sorted(item["metadata"]["name"] for item in items)


def test_lists_over_the_cluster_show_only_the_demos_objects(scoped: Scoped) -> None:
    """Also where a selector is asked for already, as for restarts that somebody else has under way."""
    assert names(scoped.get("/api/v1/nodes", {"limit": "500"})["items"]) == ["ours"]
    assert names(scoped.get("/apis/batch/v1/jobs", {"labelSelector": "nodeguard.io/restart"})["items"]) == ["ours"]


def test_a_watch_tells_only_of_the_demos_objects(scoped: Scoped) -> None:
    """From the beginning on."""
    told = [event["object"]["metadata"]["name"]
            for event in scoped.watch("/api/v1/nodes", {"timeoutSeconds": "1"}, threading.Event())
            if event["type"] == "ADDED"]
    assert told == ["ours"]


def test_what_is_asked_for_by_name_is_answered(scoped: Scoped) -> None:
    """Objects, one namespace's collections and discovery go through as they are."""
    assert scoped.get("/api/v1/nodes/theirs")["metadata"]["name"] == "theirs"
    assert len(scoped.get("/apis/batch/v1/namespaces/default/jobs")["items"]) == 3
    assert scoped.get("/apis/batch")["preferredVersion"]["groupVersion"] == "batch/v1"
