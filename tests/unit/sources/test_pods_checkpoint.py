"""The kubelet's device checkpoint: every version of it, and any JSON at all."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.device import Device
from nodeguard.model.errors import SourceError
from nodeguard.sources.pods_checkpoint import allotted

FILES = Path(__file__).parents[2] / "fixtures" / "checkpoint"
POD, SHARED = "3f2c9a10-7b1e-4c55-9d0a-6b1f2e3d4c5b", "5d5d5d5d-0000-4000-8000-000000000001"
ONE = Device("gpu/GPU-11111111-1111-1111-1111-111111111111")
TWO = Device("gpu/GPU-22222222-2222-2222-2222-222222222222")


def read(name: str) -> dict[Device, frozenset[str]]:
    return dict(allotted((FILES / name).read_bytes()).pods)


def test_devices_by_numa_node() -> None:
    """Kubernetes 1.20 and newer; a shared GPU has all its pods, and other resources are nobody's GPU."""
    found = allotted((FILES / "numa.json").read_bytes())
    assert found.pods == {ONE: {POD}, TWO: {POD, SHARED}}
    assert (found.complete, found.malformed) == (True, 0)


def test_devices_as_a_list() -> None:
    """Kubernetes up to 1.19."""
    assert read("list.json") == {ONE: {POD}, TWO: {POD}}


def test_a_mig_instance_that_names_its_gpu() -> None:
    """Is known as that GPU's instance."""
    assert read("mig-by-parent.json") == {Device(f"{ONE}/gi5/ci0"): {POD}}


def test_a_mig_instance_that_does_not_name_its_gpu() -> None:
    """Is kept by its own UUID: NVML may know it."""
    found = allotted((FILES / "mig-by-uuid.json").read_bytes())
    assert (found.pods, found.complete) == ({}, True)
    assert list(found.instances.values()) == [{POD}]
    assert all(uuid.startswith("MIG-") for uuid in found.instances)


def test_ids_that_do_not_tell_the_gpu() -> None:
    """Then no GPU can be said to be nobody's."""
    found = allotted((FILES / "minor-numbers.json").read_bytes())
    assert (found.pods, found.instances, found.complete) == ({}, {}, False)


def test_nothing_was_given_out() -> None:
    """A new kubelet writes null for no entries."""
    assert allotted((FILES / "empty.json").read_bytes()).complete


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"Data": []}', '{"Data": {"PodDeviceEntries": 3}}',
                                  "[" * 100_000, b"\xff\xfe\x00"])
def test_what_is_no_checkpoint(text: str | bytes) -> None:
    """Is said to be none."""
    with pytest.raises(SourceError):
        allotted(text)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["PodUID", "ResourceName", "DeviceIDs", "0"]) | st.text(max_size=3), inner), max_leaves=12)


@given(st.lists(ANY, max_size=5), st.integers(0, 5))
def test_a_bad_entry_costs_itself(others: list[Any], place: int) -> None:
    """Whatever stands beside it, a good entry is read, and a bad one is counted."""
    good = {"PodUID": POD, "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": [ONE.removeprefix("gpu/")]}}
    entries = [*others[:place], good, *others[place:]]
    found = allotted(json.dumps({"Data": {"PodDeviceEntries": entries}}))
    assert POD in found.pods[ONE]
    assert found.malformed <= len(others)
    assert not (found.malformed and found.complete)
