"""The brake: what its ConfigMap says, and how entries of it are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.kube.brake import Brake, Hold, brake_of, entries_off, entry, fetch, held, path, write
from nodeguard.kube.fake import FakeApi
from nodeguard.model.errors import ApiConflict, ApiUnavailable

HASH, OTHER = "0123456789abcdef", "fedcba9876543210"
WORDS = "2026-01-01T00:00:00Z kim the limit is wrong"


def brake(**data: str) -> Brake:
    """A brake with these entries; ``__`` stands for a dot."""
    return brake_of({"data": {key.replace("__", ".").replace("_", "-"): text for key, text in data.items()}})


@pytest.mark.parametrize(("text", "holds"), [
    (f"{HASH} {WORDS}", True), (f"{OTHER} {WORDS}", False), (f"* {WORDS}", True), ("", True), ("true", True),
    ("because I say so", True), ("false", False), ("Off", False), ("no longer wanted", False), (HASH.upper(), True),
])
def test_rule_is_held_by_its_hash_or_by_name(text: str, holds: bool) -> None:  # noqa: FBT001 (a table)
    """A hash holds the rule as it was; any other first word, as people write it, however it is, but for "no"."""
    found = brake(rule__gpu_hot=text)
    assert held(found, "gpu-hot", HASH) is holds
    assert not held(found, "gpu-lost", HASH)


@pytest.mark.parametrize(("text", "holds"), [("* now me why", True), ("", True), ("false", False)])
def test_all_holds_every_rule(text: str, holds: bool) -> None:  # noqa: FBT001 (a table)
    """Whatever its name and content."""
    assert held(brake(all=text), "gpu-lost", OTHER) is holds


def test_words_are_kept_for_people() -> None:
    """Who, when and why, also where no hash stands before."""
    assert brake(all=f"* {WORDS}").everything == Hold("*", WORDS)
    assert brake(rule__gpu_hot="Kim said stop").rules == {"gpu-hot": Hold("*", "Kim said stop")}


@given(name=st.from_regex(r"[a-z][a-z0-9]{0,9}(-[a-z0-9]{1,9}){0,3}", fullmatch=True), words=st.text(),
       content_hash=st.sampled_from(["*", HASH]))
def test_what_is_written_is_read(name: str, words: str, content_hash: str) -> None:
    """A hold survives its text, but for line breaks and blanks in a reason."""
    data = entry(name, Hold(content_hash, words))
    found = brake_of({"data": data})
    assert held(found, name, HASH)
    assert held(found, name, OTHER) is (content_hash == "*")
    assert len(next(iter(data.values())).splitlines()) == 1
    assert entries_off([name]) == dict.fromkeys(data)


@given(data=st.none() | st.dictionaries(st.text(), st.text()))
def test_any_config_map_is_understood(data: dict[str, str] | None) -> None:
    """Entries of other names are somebody else's."""
    found = brake_of({"data": data})
    assert set(found.rules) <= {key.removeprefix("rule.") for key in data or {} if key.startswith("rule.")}


def test_no_config_map_is_no_brake() -> None:
    """As it is on a new cluster."""
    assert fetch(FakeApi(), "nodeguard") == Brake()


def test_entries_are_added_to_those_that_stand() -> None:
    """The ConfigMap is created by the first entry; others keep theirs."""
    api = FakeApi()
    write(api, "nodeguard", entry("gpu-hot", Hold(HASH, WORDS)))
    write(api, "nodeguard", entry(None, Hold(words=WORDS)))
    assert fetch(api, "nodeguard") == Brake(Hold("*", WORDS), {"gpu-hot": Hold(HASH, WORDS)})


def test_somebody_else_may_create_it_in_the_same_moment() -> None:
    """Both entries stand."""
    api = FakeApi()

    def other() -> None:
        api.add(path("nodeguard"), {"data": entry("gpu-lost", Hold(words="kim"))})

    api.before("POST", "/api/v1/namespaces/nodeguard", other)
    api.fail("POST", "/api/v1/namespaces/nodeguard", ApiConflict("exists", status=409))
    write(api, "nodeguard", entry("gpu-hot", Hold(HASH, WORDS)))
    assert set(fetch(api, "nodeguard").rules) == {"gpu-hot", "gpu-lost"}


def test_a_write_that_fails_is_told() -> None:
    """To whoever wanted the brake."""
    api = FakeApi()
    api.fail("PATCH", path("nodeguard"), ApiUnavailable("no answer"))
    with pytest.raises(ApiUnavailable):
        write(api, "nodeguard", entry(None, Hold()))
