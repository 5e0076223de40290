"""Workers that may be left behind: what hangs is waited for once and delays nobody afterwards."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from nodeguard.sources.workers import Crew, Outcome

LONG = 15.0
"""Seconds that no test here may ever wait."""


class Stuck:
    """A job that answers when a test lets it."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self) -> str:
        self.go.wait(LONG)
        return "late"


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    """Let go at the end, so that no thread is left."""
    job = Stuck()
    yield job
    job.go.set()


def test_outcomes_and_errors_come_back() -> None:
    """What a job returns, or raises, is its outcome, and its worker is idle again."""
    crew = Crew()
    crew.give("a", lambda: 7, 1.0)
    crew.give("b", lambda: int("x"), 1.0)
    found = {one.worker: one for one in crew.collect(LONG)}
    assert (found["a"].value, found["a"].error) == (7, None)
    assert isinstance(found["b"].error, ValueError)
    assert crew.idle("a")
    assert crew.out() == {}
    crew.dismiss()


def test_a_job_that_hangs_is_waited_for_once(stuck: Stuck) -> None:
    """The first wait gives up on it; the next ones are over as soon as the others have answered."""
    crew = Crew()
    crew.give("stuck", stuck, 1.0)
    assert crew.collect(0.01) == []
    for number in range(3):
        crew.give("other", partial(int, number), 2.0)
        assert [one.value for one in crew.collect(LONG)] == [number]
    assert crew.collect(LONG) == []
    assert crew.out() == {"stuck": 1.0}
    assert not crew.idle("stuck")
    crew.dismiss()


def test_a_late_answer_is_not_lost(stuck: Stuck) -> None:
    """It comes with a later collection, and its worker takes jobs again."""
    crew = Crew()
    crew.give("stuck", stuck, 1.0)
    crew.collect(0.01)
    stuck.go.set()
    found: list[Outcome] = []
    while not found:
        found = crew.collect(LONG)
    assert [(one.worker, one.value) for one in found] == [("stuck", "late")]
    crew.give("stuck", lambda: "soon", 3.0)
    assert [one.value for one in crew.collect(LONG)] == ["soon"]
    crew.dismiss()


def test_a_wait_can_be_cut_short(stuck: Stuck) -> None:
    """Somebody who stops the source need not wait for the deadline."""
    crew = Crew()
    crew.give("stuck", stuck, 1.0)
    crew.hurry()
    assert crew.collect(LONG) == []
    crew.dismiss()
