"""One leader at a time, and a ledger that a paused one cannot write."""

import pytest

from nodeguard.kube.api import MERGE_PATCH
from nodeguard.kube.election import DURATION, LeaderLease
from nodeguard.kube.fake import FakeApi
from nodeguard.model.clock import FakeClock
from nodeguard.model.errors import ApiUnavailable

PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/loop"


def replica(api: FakeApi, name: str, clock: FakeClock) -> LeaderLease:
    """A replica with this identity."""
    return LeaderLease(api, "ns", "loop", name, clock)


def test_the_first_leads_and_the_second_follows_until_it_falls_silent() -> None:
    """Silence is counted by the follower's own clock from the last change that it saw."""
    api, clock = FakeApi(), FakeClock()
    first, second = replica(api, "a", clock), replica(api, "b", clock)
    assert (first.turn(), second.turn()) == (True, False)
    for _ in range(20):
        clock.advance(2)
        assert (first.turn(), second.turn()) == (True, False)
    clock.advance(DURATION - 1)
    assert (first.leading(), second.turn()) == (False, False)
    clock.advance(2)
    assert second.turn()
    assert not first.turn()


def test_a_released_lease_is_taken_at_once() -> None:
    """A clean end costs the successor no waiting."""
    api, clock = FakeApi(), FakeClock()
    first, second = replica(api, "a", clock), replica(api, "b", clock)
    first.turn()
    second.turn()
    first.release()
    assert not first.leading()
    assert second.turn()


def test_a_paused_leader_knows_by_its_own_clock_and_its_write_fails() -> None:
    """Also when its clock stood still: the resourceVersion has moved."""
    api, clock, frozen = FakeApi(), FakeClock(), FakeClock()
    first, second = replica(api, "a", frozen), replica(api, "b", clock)
    first.turn()
    second.turn()
    clock.advance(DURATION + 1)
    assert second.turn()
    assert first.leading()
    with pytest.raises(ApiUnavailable):
        first.update_ledger(lambda ledger: {**ledger, "mine": 1})
    assert not first.leading()
    frozen.advance(3600)
    assert not first.leading()
    second.update_ledger(lambda ledger: {**ledger, "mine": 2})
    assert second.ledger == {"mine": 2}


def test_the_ledger_costs_one_write_and_outlives_its_leader() -> None:
    """No read in the normal case; the successor inherits it."""
    api, clock = FakeApi(), FakeClock()
    first = replica(api, "a", clock)
    first.turn()
    before = len(api.requests)
    first.update_ledger(lambda ledger: {**ledger, "slots": {"n": 1}})
    assert [one.method for one in api.requests[before:]] == ["PATCH"]
    assert first.update_ledger(lambda _: None) is None
    first.release()
    second = replica(api, "b", clock)
    second.turn()
    assert second.ledger == {"slots": {"n": 1}}


def test_somebody_elses_touch_does_not_end_a_term() -> None:
    """``kubectl annotate`` on the Lease: the ledger is changed from what stands there, and renewals go on."""
    api, clock = FakeApi(), FakeClock()
    first = replica(api, "a", clock)
    first.turn()
    api.edit(PATH, lambda lease: lease["metadata"].setdefault("annotations", {}).update(note="x"))
    first.update_ledger(lambda ledger: {**ledger, "n": 1})
    api.edit(PATH, lambda lease: lease["metadata"]["annotations"].update(note="y"))
    assert first.turn()
    assert api.read(PATH)["metadata"]["annotations"]["note"] == "y"


def test_a_lost_answer_is_read_back() -> None:
    """The write was done although its answer never came: it is not done twice, and not said to have failed."""
    api, clock = FakeApi(), FakeClock()
    first = replica(api, "a", clock)
    first.turn()
    calls = []

    def change(ledger: dict[str, int]) -> dict[str, int]:
        calls.append(1)
        return {"n": ledger.get("n", 0) + 1}

    def lose() -> None:
        api.edit(PATH, lambda lease: lease["metadata"].setdefault("annotations", {}).update(
            {"nodeguard.io/budget": '{"n":1}'}))
        raise ApiUnavailable("the connection was cut")
    api.before("PATCH", PATH, lose)
    assert first.update_ledger(change) == {"n": 1}
    assert calls == [1]


def test_a_ledger_that_is_no_json_is_an_empty_one() -> None:
    """Somebody's hand in it costs the ledger, not the leader."""
    api, clock = FakeApi(), FakeClock()
    first = replica(api, "a", clock)
    first.turn()
    for text in ("{", "[1]", "3"):
        note = {"nodeguard.io/budget": text}
        api.patch(PATH, {"metadata": {"annotations": note}}, MERGE_PATCH)
        again = replica(api, "a", clock)
        assert again.turn()
        assert again.ledger == {}
