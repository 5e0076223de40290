"""Pauses after failures and limits on rates."""

from nodeguard.kube.pace import Backoff, TokenBucket, spread_of


def test_backoff_doubles_to_its_limit_and_starts_again() -> None:
    """0.2, 0.4 … 10 s; after a success from the start."""
    backoff = Backoff(0.2, 1.0)
    assert [backoff.next() for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.next() == 0.2


def test_backoff_honours_what_the_server_asks_up_to_a_minute() -> None:
    """Retry-After is a lower bound, but a day of it is not obeyed."""
    backoff = Backoff(0.2, 1.0)
    assert backoff.next(5.0) == 5.0
    assert backoff.next(86_400.0) == 60.0


def test_bucket_allows_a_burst_and_then_a_rate() -> None:
    """Two at once, then one each two seconds, never more than the burst saved up."""
    bucket = TokenBucket(2, 0.5)
    for _ in range(2):
        assert bucket.wait(100.0) == 0.0
        bucket.take(100.0)
    assert bucket.wait(100.0) == 2.0
    assert bucket.wait(102.0) == 0.0
    bucket.take(102.0)
    assert bucket.wait(103.0) == 1.0
    for _ in range(2):
        bucket.take(10_000.0)
    assert bucket.wait(10_000.0) == 2.0


def test_spread_is_steady_per_node_and_differs_between_nodes() -> None:
    """A fleet's periods are spread over the whole range."""
    found = [spread_of(f"gpu-{number}") for number in range(1000)]
    assert found[7] == spread_of("gpu-7")
    assert all(-1.0 <= one < 1.0 for one in found)
    assert min(found) < -0.9
    assert max(found) > 0.9
