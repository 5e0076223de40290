"""What is written to a Lease."""

import re

import pytest

from nodeguard.kube.lease import count_of, lease_path, micro_time, node_lease, renewal, renewal_period

NODE = {"metadata": {"name": "gpu-7", "uid": "u1"}}


@pytest.mark.parametrize(("nodes", "seconds"), [(0, 2.0), (1, 2.0), (400, 2.0), (401, 2.005), (5000, 25.0)])
def test_period_grows_with_the_cluster(nodes: int, seconds: float) -> None:
    """Two seconds, and from 400 nodes on as long as keeps all of them at 200 writes a second."""
    assert renewal_period(nodes) == seconds


@pytest.mark.parametrize(("page", "count"), [
    ({"items": [NODE], "metadata": {"remainingItemCount": 999}}, 1000),
    ({"items": [NODE], "metadata": {}}, 1), ({"items": []}, 0), ({"items": None, "metadata": None}, 0),
])
def test_first_page_tells_how_many_there_are(page: dict[str, object], count: int) -> None:
    """The server adds what is left behind the page, and leaves it out where nothing is."""
    assert count_of(page) == count


def test_time_has_six_digits() -> None:
    """Any other number of them is refused by the API server."""
    assert micro_time(1_700_000_000.25) == "2023-11-14T22:13:20.250000Z"
    assert re.fullmatch(r"\S+T\d\d:\d\d:\d\d\.\d{6}Z", micro_time(1_700_000_000))


def test_renewal_says_how_long_a_silence_is_too_long() -> None:
    """Three periods in whole seconds, rounded up."""
    spec = renewal("gpu-7", 2.005, 1_700_000_000)["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("gpu-7", 7)
    assert spec["renewTime"] == "2023-11-14T22:13:20.000000Z"


def test_new_lease_belongs_to_its_node() -> None:
    """So it is collected with a deleted Node; it blocks no deletion."""
    lease = node_lease(NODE, "nodeguard", 2.0, 1_700_000_000)
    assert lease["metadata"] == {"name": "gpu-7", "namespace": "nodeguard", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "gpu-7", "uid": "u1"}]}
    assert lease["spec"]["acquireTime"] == lease["spec"]["renewTime"]
    assert lease_path("nodeguard", "gpu-7") == "/apis/coordination.k8s.io/v1/namespaces/nodeguard/leases/gpu-7"
