"""Fixtures of the tests against a real control plane.

``control_plane`` is a cluster: its own, built once and started once per run, or the one
of ``NODEGUARD_E2E_KUBECONFIG``. Where neither can be had, the tests are skipped with one
line that says how to get one, but under ``CI=true`` they fail.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .controlplane.cluster import CLUSTER_ENV, Cluster, existing_cluster
from .controlplane.errors import ControlPlaneUnavailable
from .controlplane.kubelet import FakeKubelet
from .controlplane.server import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .controlplane.admin import Admin
    from .controlplane.proxy import FaultProxy

_HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", "e2e: needs a real control plane")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this directory `e2e`, with time to start a control plane."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(120, func_only=True))


def _unavailable(error: ControlPlaneUnavailable) -> None:
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(str(error), pytrace=False)
    pytest.skip(str(error))


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """The cluster that the tests share."""
    given = os.environ.get(CLUSTER_ENV)
    try:
        cluster = ControlPlane() if given is None else existing_cluster(Path(given))
    except ControlPlaneUnavailable as error:
        _unavailable(error)
        raise
    if isinstance(cluster, ControlPlane):
        with cluster:
            yield cluster
    else:
        yield cluster
        cluster.discard_directory()


@pytest.fixture
def own_control_plane(control_plane: Cluster) -> ControlPlane:
    """The shared cluster where the test may stop its parts; skipped on a given one."""
    if not isinstance(control_plane, ControlPlane):
        pytest.skip("stops parts of the control plane; not done to a given cluster")
    return control_plane


@pytest.fixture
def admin(control_plane: Cluster) -> Admin:
    """Raw access as administrator."""
    return control_plane.admin


@pytest.fixture
def unique() -> str:
    """A name no other test has."""
    return f"e2e-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def node(admin: Admin, unique: str) -> Iterator[str]:
    """The name of a Node object made for this test; nothing runs it."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique}}
    admin.create("/api/v1/nodes", body)
    yield unique
    admin.delete(f"/api/v1/nodes/{unique}")


@pytest.fixture
def namespace(admin: Admin, unique: str) -> Iterator[str]:
    """A namespace for this test, usable once its default service account exists."""
    name = f"{unique}-ns"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    admin.create("/api/v1/namespaces", body)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    admin.wait_for(account, lambda _: True, seconds=30)
    yield name
    admin.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def kubelet(control_plane: Cluster, admin: Admin, unique: str) -> Iterator[FakeKubelet]:
    """A fake kubelet that runs a node of this test's own, ready for pods."""
    with FakeKubelet(unique, control_plane.as_node(unique)) as running:
        admin.wait_for(f"/api/v1/nodes/{unique}", lambda node: not node["spec"].get("taints"))
        yield running
    admin.delete(f"/api/v1/nodes/{unique}")


@pytest.fixture
def proxy(control_plane: Cluster) -> Iterator[FaultProxy]:
    """A fault proxy before the API server."""
    with control_plane.proxy() as running:
        yield running


@pytest.fixture
def new_pod(admin: Admin, namespace: str) -> Callable[..., str]:
    """Create a pod of one container, by default for the given node; returns its path."""

    def create(name: str, *, node: str, restart_policy: str = "Never") -> str:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": restart_policy,
                "nodeSelector": {"kubernetes.io/hostname": node},
                "containers": [{"name": "main", "image": "registry.invalid/none"}],
            },
        }
        admin.create(f"/api/v1/namespaces/{namespace}/pods", pod)
        return f"/api/v1/namespaces/{namespace}/pods/{name}"

    return create
