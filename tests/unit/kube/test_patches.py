"""What is sent to change a Node."""

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.kube.patches import (
    is_own_type,
    rfc3339,
    status_patch,
    taint_patch,
    taints_with,
    taints_without,
    unix_time,
)
from nodeguard.model.intent import TAINT_KEY

X = {"key": "X", "effect": "NoExecute", "timeAdded": "2023-11-14T22:13:20Z"}
OWN = {"key": TAINT_KEY, "value": "GpuMemoryFault", "effect": "NoSchedule"}


def test_status_patch_is_conditions_and_annotations_in_one_body() -> None:
    """Conditions to write, conditions to remove by type, and annotations."""
    assert status_patch([{"type": "GpuA", "status": "True"}], ["GpuB"], {"a": "1", "b": None}) == {
        "metadata": {"annotations": {"a": "1", "b": None}},
        "status": {"conditions": [{"type": "GpuA", "status": "True"}, {"type": "GpuB", "$patch": "delete"}]}}


def test_taint_patch_carries_the_version_it_was_made_from() -> None:
    """Without the precondition the list would overwrite what somebody added meanwhile."""
    assert taint_patch("7", [X, OWN]) == {"metadata": {"resourceVersion": "7"}, "spec": {"taints": [X, OWN]}}


def test_taints_keep_others_as_they_are_and_in_order() -> None:
    """Ours comes last when new and stays in its place when its value changes."""
    assert taints_with([X], "GpuMemoryFault").wanted == [X, OWN]
    assert taints_with([OWN, X], "GpuLost").wanted == [{**OWN, "value": "GpuLost"}, X]
    assert taints_with([X, OWN], "GpuMemoryFault").wanted is None
    assert taints_without([OWN, X]).wanted == [X]
    assert taints_without([X]).wanted is None


_TAINT = st.fixed_dictionaries({
    "key": st.sampled_from([TAINT_KEY, "X", "Y"]), "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
}, optional={"value": st.sampled_from(["GpuMemoryFault", "manual", "", "Gpu-"])})


@given(st.lists(_TAINT, max_size=5, unique_by=lambda one: (one["key"], one["effect"])))
def test_no_foreign_taint_is_ever_lost_doubled_or_moved(taints: list[dict[str, str]]) -> None:
    """Whatever stands there: adding and removing ours leaves exactly the others, in order."""
    def others(items: list[dict[str, str]]) -> list[dict[str, str]]:
        return [one for one in items if one["key"] != TAINT_KEY or one["effect"] != "NoSchedule"
                or not is_own_type(one.get("value"))]

    added = taints_with(taints, "PcieFault").wanted or taints
    removed = taints_without(added).wanted
    assert others(added) == others(taints)
    assert (added if removed is None else removed) == others(taints)
    keys = [(one["key"], one["effect"]) for one in added]
    assert len(set(keys)) == len(keys)


@given(st.integers(min_value=0, max_value=4_000_000_000))
def test_times_go_there_and_back(wall: int) -> None:
    """Whole seconds survive the format of the API server."""
    assert unix_time(rfc3339(wall)) == wall
    assert rfc3339(wall).endswith("Z")


@given(st.one_of(st.none(), st.text(), st.integers()))
def test_no_time_is_none(text: object) -> None:
    """What somebody wrote where a time belongs never raises."""
    found = unix_time(text)
    assert found is None or isinstance(found, float)


def test_own_types() -> None:
    """Only the design's prefixes are ours; a newline does not slip through."""
    assert is_own_type("GpuMemoryFault")
    assert not is_own_type("Ready")
    assert not is_own_type("GPUHealthy")
    assert not is_own_type("GpuX\n")
    assert not is_own_type(None)
