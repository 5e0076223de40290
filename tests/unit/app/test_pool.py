"""Threads for what waits: calls run beside each other, and a stop lets those under way end and drops the rest."""

import threading

import pytest

from nodeguard.app.pool import Pool


def test_calls_run_beside_each_other() -> None:
    """As many at once as there are threads."""
    pool, together, done = Pool(3, lambda _: None), threading.Barrier(3), threading.Semaphore(0)

    def call() -> None:
        together.wait(5)
        done.release()

    pool.start()
    for _ in range(3):
        pool.submit(call)
    assert all(done.acquire(timeout=5) for _ in range(3))
    pool.stop(5)


def test_stop_drops_what_waits() -> None:
    """What is under way ends; what was not begun never is."""
    pool, begun, end, told = Pool(1, lambda _: None), threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        end.wait(5)
        told.append("first")

    pool.start()
    pool.submit(first)
    pool.submit(lambda: told.append("second"))
    assert begun.wait(5)
    pool.stop(0.0)
    end.set()
    pool.stop(5)
    assert told == ["first"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_defect_is_told() -> None:
    """With the thread's name."""
    told, heard = [], threading.Event()

    def broken(name: str) -> None:
        told.append(name)
        heard.set()

    def call() -> None:
        raise ZeroDivisionError

    pool = Pool(1, broken)
    pool.start()
    pool.submit(call)
    assert heard.wait(5)
    pool.stop(5)
    assert told == ["hand-0"]
