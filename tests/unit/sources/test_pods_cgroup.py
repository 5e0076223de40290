"""The pod of a process: every form that kubelets and runtimes give its cgroup, and any text at all."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.sources.pods_cgroup import pod_uid

FILES = Path(__file__).parents[2] / "fixtures" / "cgroup"
POD = "3f2c9a10-7b1e-4c55-9d0a-6b1f2e3d4c5b"
NAMES = sorted(path.name for path in FILES.iterdir())


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("v")])
def test_every_form_names_the_pod(name: str) -> None:
    """cgroup v1 and v2, both drivers, every runtime, nested or seen from a namespace: the pod on this node."""
    assert pod_uid((FILES / name).read_text()) == POD


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("none")])
def test_a_process_in_no_pod(name: str) -> None:
    """Services of the host and containers that no kubelet made belong to no pod."""
    assert pod_uid((FILES / name).read_text()) is None


def test_a_static_pod_is_known_by_its_hash() -> None:
    """As its log directory is."""
    assert pod_uid((FILES / "static-pod").read_text()) == "99dcb84d2a34f7e338778606703258c4"


@given(st.text())
def test_any_text_is_a_pod_or_none(text: str) -> None:
    """Nothing raises, and what is no UID is no pod."""
    found = pod_uid(text)
    assert found is None or len(found) in (32, 36)


@given(st.uuids(), st.sampled_from(["", "-burstable", "-besteffort"]), st.sampled_from(["", "kubelet-"]),
       st.lists(st.text("abc-.:", min_size=1), max_size=3))
def test_both_drivers_write_the_same_pod(uid: object, qos: str, root: str, below: list[str]) -> None:
    """Whatever is below it, the UID comes back as the API server has it."""
    rest = "/".join(below)
    systemd = f"0::/kubepods.slice/{root}kubepods{qos}-pod{str(uid).replace('-', '_')}.slice/{rest}\n"
    cgroupfs = f"5:devices:/kubepods/pod{uid}/{rest}\n"
    assert pod_uid(systemd) == pod_uid(cgroupfs) == str(uid)
