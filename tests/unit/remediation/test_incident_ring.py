"""The ring of incidents in its ConfigMap: bounded, shared between leaders, readable whatever stands in it."""

import dataclasses
import json

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.kube.fake import FakeApi
from nodeguard.model.clock import FakeClock
from nodeguard.model.errors import ApiRefused, ApiUnavailable
from nodeguard.remediation.incidents import Incidents
from nodeguard.remediation.incidents_entry import PHASES, Incident, document, encode, parse
from nodeguard.remediation.incidents_ring import Ring

from .incident_rig import PATH, happening, incidents_of, written
from .rig import EVICT, Rig


def test_changes_are_gathered_for_two_seconds() -> None:
    """The first is written at once, the next together; closing writes the rest."""
    api, clock = FakeApi(), FakeClock()
    incidents = Incidents(api, clock, "nodeguard")
    for number in range(5):
        incidents.take(happening(f"i{number}", at=float(number), node=f"n{number}"))
        incidents.turn()
        clock.advance(0.1)
    assert len(api.writes(PATH.rpartition("/")[0])) == 1
    clock.advance(2.0)
    incidents.turn()
    assert len(api.writes()) == 2
    incidents.take(happening("i9", at=9.0, node="n9"))
    incidents.close()
    assert len(written(api)) == 6
    assert set(api.writes()[-1].body["data"]) == {"sim___n9.i9"}  # type: ignore[index] # a patch has one


def test_two_leaders_lose_nothing_of_each_other() -> None:
    """A write meets the other's, reads it and is repeated; of the same incident both halves stay."""
    api, clock = FakeApi(), FakeClock()
    one, other = (Incidents(api, clock, "nodeguard") for _ in range(2))
    one.take(happening("i1", at=10.0))
    one.close()
    taken = other.take(happening("i1", at=12.0, what="gone", began=10.0))
    assert taken is not None
    assert set(taken.reached) == {"gone"}, "what the other leader has reached is told by it"
    other.take(happening("i2", at=13.0, node="b"))
    other.close()
    one.take(happening("i1", at=11.0, what="suspended"))
    one.close()
    first, second = written(api)
    assert (set(first.stamps), second.id) == ({"quarantined", "suspended", "gone"}, "i2")


def test_two_leaders_create_it_at_once() -> None:
    """The one that comes later reads what the first has written."""
    api, clock = FakeApi(), FakeClock()
    one, other = (Incidents(api, clock, "nodeguard") for _ in range(2))
    other.take(happening("i2", at=12.0, node="b"))
    api.before("POST", PATH.rpartition("/")[0], other.close)
    one.take(happening("i1", at=10.0))
    one.close()
    assert [incident.id for incident in written(api)] == ["i1", "i2"]


def test_an_outage_delays_and_is_told_once() -> None:
    """Nothing is lost while the process lives."""
    api, clock, told = FakeApi(), FakeClock(), []
    incidents = Incidents(api, clock, "nodeguard", report=lambda what, _text: told.append(what))
    api.fail("*", "/api", ApiUnavailable("away"), times=100)
    incidents.take(happening("i1", at=10.0))
    while clock.boot() < 1300.0:
        clock.advance(incidents.turn())
    assert len(api.requests) < 20
    api.heal()
    clock.advance(31.0)
    incidents.turn()
    assert told == ["failing", "recovered"]
    assert len(written(api)) == 1


def test_a_refusal_is_told_and_stops_nothing() -> None:
    """Such as a Role without the right."""
    api, told = FakeApi(), []
    incidents = Incidents(api, FakeClock(), "nodeguard", report=lambda _what, text: told.append(text))
    api.fail("*", "/api", ApiRefused("403 forbidden", status=403))
    incidents.take(happening("i1", at=10.0))
    incidents.close()
    assert told == ["incidents cannot be written: 403 forbidden"]
    incidents.close()
    assert len(written(api)) == 1


def test_the_ring_is_bounded_in_entries_and_the_oldest_ended_goes_first() -> None:
    """What is still open stays as long as there is anything else to let go."""
    api = FakeApi()
    ring = Ring(api, "nodeguard", most=3)
    for number in range(4):
        ring.put(incident(f"i{number}", begun=float(number), outcome="" if number == 0 else "released"))
    ring.write()
    assert [one.id for one in written(api)] == ["i0", "i2", "i3"]
    for number in range(4, 8):
        ring.put(incident(f"i{number}", begun=float(number)))
    ring.write()
    assert [one.id for one in written(api)] == ["i5", "i6", "i7"]


def test_the_ring_is_bounded_in_bytes() -> None:
    """Keys, and letters that take several bytes, count as what they are."""
    api = FakeApi()
    ring = Ring(api, "nodeguard", largest=6000)
    for number in range(40):
        ring.put(incident(f"i{number}", begun=float(number), reason="ü" * 200, outcome="released"))
    ring.write()
    data = api.read(PATH)["data"]
    assert 4000 < sum(len(key) + len(text.encode()) for key, text in data.items()) <= 6000
    assert "m.i39" in data


def test_a_full_default_ring_fits_into_a_config_map() -> None:
    """1,000 entries as large as they get stay below 900 KiB."""
    ring = Ring(FakeApi(), "nodeguard")
    large = largest()
    for number in range(200):
        ring.put(dataclasses.replace(large, id=f"i{number:04}", begun=float(number)))
    kept = list(ring)
    assert sum(len(encode(one).encode()) + len(one.key) for one in kept) < 900 << 10
    assert len(kept) < 200


def test_an_entry_that_is_not_understood_is_left_alone() -> None:
    """A later generation's, or a person's."""
    api = FakeApi()
    api.add(PATH, {"data": {"theirs": "{}", "later": '{"v":9}', "odd": "no JSON"}})
    incidents = Incidents(api, FakeClock(), "nodeguard")
    incidents.take(happening("i1", at=10.0))
    incidents.close()
    assert len(written(api)) == 1
    assert set(api.read(PATH)["data"]) == {"theirs", "later", "odd", "sim___a.i1"}


TIMES = st.floats(0, 4e9).map(lambda at: round(at, 3))
WORDS = st.text(max_size=40)


@given(st.builds(
    Incident, id=WORDS, machine=WORDS, begun=TIMES, changed=TIMES, node=WORDS, state=WORDS, outcome=WORDS,
    rules=st.lists(WORDS, max_size=3).map(tuple), stamps=st.dictionaries(st.sampled_from(PHASES), TIMES),
    owners=st.dictionaries(WORDS, WORDS, max_size=3), waited=st.lists(st.tuples(TIMES, WORDS), max_size=3).map(tuple),
    faults=st.just(()), restarts=st.just({})))
def test_an_entry_is_read_as_it_was_written(one: Incident) -> None:
    """To the millisecond."""
    found = parse(encode(one))
    assert found is not None
    assert document(found) == document(one)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.just(1),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from([*document(Incident(id="i", machine="m", begun=0, changed=0)), "x"]), inner)))
def test_reading_an_entry_raises_nothing(anything: object) -> None:
    """Whatever somebody put into the ConfigMap."""
    parse(json.dumps(anything))
    if isinstance(anything, dict):
        parse(json.dumps({**document(Incident(id="i", machine="m", begun=0, changed=0)), **anything}))


def incident(identity: str, *, begun: float, outcome: str = "", reason: str = "") -> Incident:
    """An entry."""
    return Incident(id=identity, machine="m", begun=begun, changed=begun, outcome=outcome, reason=reason)


def largest() -> Incident:
    """An entry as full as the loop can make it."""
    rig = Rig()
    rig.cluster.node("a")
    faults = [{**EVICT, "rule": f"r{number}", "evidence": "x" * 900} for number in range(40)]
    for number in range(60):
        rig.cluster.pod(f"{number}-{'p' * 60}", "a", gpus=1)
    rig.run()
    rig.cluster.fault("a", *faults)
    rig.run()
    incidents = incidents_of(rig)
    incidents.close()
    (one,) = written(rig.cluster)
    assert len(encode(one)) < 16 << 10
    return one
