"""The election and its ledger when answers are lost, people meddle, and replicas race over HTTP."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeguard.kube.api import MERGE_PATCH, Object
from nodeguard.kube.client import KubeClient
from nodeguard.kube.election import DURATION, LEDGER, RENEW_EVERY, LeaderLease
from nodeguard.kube.fake import FakeApi
from nodeguard.model.clock import FakeClock
from nodeguard.model.errors import ApiConflict, ApiError, ApiUnavailable
from nodeguard.sim.apiserver import EmbeddedApiServer

LEASES = "/apis/coordination.k8s.io/v1/namespaces/nodeguard/leases"
PATH = f"{LEASES}/loop"


def replica(api: FakeApi | KubeClient, name: str, clock: FakeClock) -> LeaderLease:
    """A replica with this identity."""
    return LeaderLease(api, "nodeguard", "loop", name, clock)


def leader(api: FakeApi, clock: FakeClock, name: str = "a") -> LeaderLease:
    """A replica that leads."""
    lease = replica(api, name, clock)
    assert lease.turn()
    return lease


def plus_one(ledger: Object) -> Object:
    """A change that is seen when it is done twice."""
    return {"n": ledger.get("n", 0) + 1}


def answer_lost(api: FakeApi, error: ApiError) -> None:
    """Let the next PATCH of the Lease be done, and answered with ``error``."""
    def lose() -> None:
        sent = api.requests[-1].body
        assert sent is not None
        api.patch(PATH, sent, MERGE_PATCH)
        raise error

    api.before("PATCH", PATH, lose)


@pytest.mark.parametrize("error", [
    ApiUnavailable("the connection was cut"), ApiConflict("changed meanwhile, by the same request sent before")])
def test_a_write_whose_answer_was_lost_is_done_once(error: ApiError) -> None:
    """A connection that died is tried a second time by the client: then the conflict is with its own first request."""
    api, clock = FakeApi(), FakeClock()
    first = leader(api, clock)
    answer_lost(api, error)
    assert first.update_ledger(plus_one) == {"n": 1}
    assert json.loads(api.read(PATH)["metadata"]["annotations"][LEDGER]) == {"n": 1}
    assert first.update_ledger(plus_one) == {"n": 2}


def test_a_renewal_whose_answer_was_lost_costs_no_term() -> None:
    """The Lease has another version than the leader knows, and is still its own."""
    api, clock = FakeApi(), FakeClock()
    first = leader(api, clock)
    clock.advance(RENEW_EVERY)
    answer_lost(api, ApiUnavailable("cut"))
    assert first.turn()
    assert first.failure == "cut"
    assert first.turn()
    assert first.failure == ""
    assert api.read(PATH)["spec"]["leaseTransitions"] == 0


def test_a_take_over_whose_answer_was_lost_is_known_again() -> None:
    """The term that it took is its own, although it never heard so."""
    api, clock = FakeApi(), FakeClock()
    first, second = leader(api, clock), replica(api, "b", clock)
    second.turn()
    clock.advance(DURATION)
    answer_lost(api, ApiUnavailable("cut"))
    assert not second.turn()
    assert second.turn()
    assert not first.turn()
    assert api.read(PATH)["spec"]["leaseTransitions"] == 1


def test_what_could_not_be_settled_is_said_and_nothing_is_lost() -> None:
    """Write and look both fail: the caller hears so, the term goes on, and the next change begins with a look."""
    api, clock = FakeApi(), FakeClock()
    first = leader(api, clock)
    answer_lost(api, ApiUnavailable("cut"))
    api.fail("GET", PATH, ApiUnavailable("away"))
    with pytest.raises(ApiUnavailable, match="away"):
        first.update_ledger(lambda ledger: None if "slot" in ledger else {"slot": 1})
    assert first.leading()
    assert first.update_ledger(lambda ledger: None if "slot" in ledger else {"slot": 1}) is None
    assert first.ledger == {"slot": 1}
    answer_lost(api, ApiUnavailable("cut"))
    api.fail("GET", PATH, ApiUnavailable("away"))
    with pytest.raises(ApiUnavailable, match="away"):
        first.update_ledger(plus_one)
    assert first.update_ledger(plus_one) == {"n": 2}


def test_a_ledger_that_cannot_be_written_says_why() -> None:
    """It is tried a few times, not for ever."""
    api, clock = FakeApi(), FakeClock()
    first = leader(api, clock)
    api.fail("PATCH", PATH, ApiUnavailable("500 broken"), times=100)
    with pytest.raises(ApiUnavailable, match="500 broken"):
        first.update_ledger(plus_one)
    assert len(api.writes(PATH)) <= 10


def test_a_leader_without_answers_stops_by_itself_and_comes_back() -> None:
    """Before the time at which another may lead; and it goes on when the server is back and nobody took over."""
    api, clock = FakeApi(), FakeClock()
    first = leader(api, clock)
    api.fail("*", "/", ApiUnavailable("away"), times=1000)
    led = 0.0
    while first.turn():
        clock.advance(0.5)
        led += 0.5
    assert 2 * RENEW_EVERY < led < DURATION
    api.heal()
    assert first.turn()


def test_a_deleted_lease_is_made_again_with_its_ledger() -> None:
    """A person's ``kubectl delete lease`` costs neither the term nor what is in the ledger."""
    api, clock = FakeApi(), FakeClock()
    first = leader(api, clock)
    first.update_ledger(plus_one)
    api.remove(PATH)
    assert first.turn()
    assert (api.read(PATH)["spec"]["holderIdentity"], first.ledger) == ("a", {"n": 1})


def test_a_deleted_lease_is_no_vacancy_for_a_follower() -> None:
    """The leader may not know yet: the follower waits as long as for any silent one, and keeps the ledger."""
    api, clock = FakeApi(), FakeClock()
    first, second = leader(api, clock), replica(api, "b", clock)
    first.update_ledger(plus_one)
    second.turn()
    api.remove(PATH)
    clock.advance(RENEW_EVERY)
    assert (first.leading(), second.turn()) == (True, False)
    clock.advance(DURATION - RENEW_EVERY)
    assert (first.leading(), second.turn()) == (False, True)
    assert second.ledger == {"n": 1}
    assert not first.turn()


def test_a_write_after_the_lease_was_deleted_is_refused() -> None:
    """Nobody leads by a Lease that is not there."""
    api, clock = FakeApi(), FakeClock()
    first = leader(api, clock)
    api.remove(PATH)
    with pytest.raises(ApiUnavailable, match="nobody leads"):
        first.update_ledger(plus_one)
    assert not first.leading()


def test_silence_is_counted_from_the_answer_that_told_of_the_change() -> None:
    """A slow read of the Lease does not shorten its holder's time."""
    api, clock = FakeApi(), FakeClock()
    leader(api, FakeClock())
    second = replica(api, "b", clock)
    api.before("GET", PATH, lambda: clock.advance(3.0))
    assert not second.turn()
    clock.advance(DURATION - 1.0)
    assert not second.turn()
    clock.advance(1.0)
    assert second.turn()


def test_a_restarted_process_goes_on_at_once_and_its_twin_stops() -> None:
    """The name is the pod's: after a crash the next container does not wait; an old one that lives on follows."""
    api, clock = FakeApi(), FakeClock()
    old = leader(api, clock)
    new = leader(api, clock)
    with pytest.raises(ApiUnavailable):
        old.update_ledger(plus_one)
    for _ in range(3):
        clock.advance(RENEW_EVERY)
        assert (old.turn(), new.turn()) == (False, True)
    assert new.update_ledger(plus_one) == {"n": 1}


def test_release_is_no_victim_of_a_meddler() -> None:
    """Somebody annotated the Lease just before: it is let go of all the same."""
    api, clock = FakeApi(), FakeClock()
    first, second = leader(api, clock), replica(api, "b", clock)
    second.turn()
    api.edit(PATH, lambda lease: lease["metadata"].setdefault("annotations", {}).update(note="x"))
    first.release()
    assert "holderIdentity" not in api.read(PATH)["spec"]
    assert second.turn()


def test_release_leaves_anothers_lease() -> None:
    """Who was replaced has nothing to let go of."""
    api, clock = FakeApi(), FakeClock()
    first, second = leader(api, FakeClock()), replica(api, "b", clock)
    second.turn()
    clock.advance(DURATION)
    assert second.turn()
    first.release()
    assert api.read(PATH)["spec"]["holderIdentity"] == "b"


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    """An API server over HTTP."""
    with EmbeddedApiServer() as running:
        yield running


@pytest.fixture
def connect(server: EmbeddedApiServer, tmp_path: Path) -> Iterator[Callable[[], KubeClient]]:
    """Makes clients."""
    config, clients = tmp_path / "kubeconfig", list[KubeClient]()
    server.write_kubeconfig(config)

    def make() -> KubeClient:
        clients.append(KubeClient.from_kubeconfig(config))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def at_once(*calls: Callable[[], object]) -> None:
    """Do all of them at the same time."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("state", ["none", "released", "silent"])
def test_of_many_that_take_a_free_lease_one_leads(
    server: EmbeddedApiServer, connect: Callable[[], KubeClient], state: str,
) -> None:
    """No Lease yet, one that was let go, one whose holder fell silent: however they race, one is first."""
    clock = FakeClock()
    if state != "none":
        holder = {"holderIdentity": "gone"} if state == "silent" else {}
        server.create(LEASES, {"metadata": {"name": "loop"}, "spec": {**holder, "leaseDurationSeconds": 15}})
    replicas = [replica(connect(), f"r{number}", clock) for number in range(5)]
    if state == "silent":
        assert [one.turn() for one in replicas] == [False] * 5
        clock.advance(DURATION)
    at_once(*(one.turn for one in replicas))
    led = [one.identity for one in replicas if one.leading()]
    assert led == [server.objects[PATH]["spec"]["holderIdentity"]]
    assert [one.turn() for one in replicas] == [one.leading() for one in replicas]
    assert len([one for one in replicas if one.leading()]) == 1


def test_changes_from_many_threads_among_renewals_and_meddlers_are_each_done_once(
    server: EmbeddedApiServer, connect: Callable[[], KubeClient],
) -> None:
    """Renewal and ledger are one object: whoever writes waits for the other, and nobody's change is lost."""
    first = replica(connect(), "a", FakeClock())
    assert first.turn()
    person = connect()

    def count() -> None:
        for _ in range(20):
            first.update_ledger(plus_one)

    def renew() -> None:
        for _ in range(20):
            assert first.turn()

    def meddle() -> None:
        for number in range(8):
            person.patch(PATH, {"metadata": {"annotations": {"note": str(number)}}}, MERGE_PATCH)

    at_once(count, count, renew, meddle)
    annotations = server.objects[PATH]["metadata"]["annotations"]
    assert (json.loads(annotations[LEDGER]), annotations["note"]) == ({"n": 40}, "7")
    assert first.leading()
