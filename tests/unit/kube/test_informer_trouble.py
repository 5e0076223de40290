"""Informers over HTTP, and what they make of servers that end watches, forget, and fall silent."""

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Self
from urllib.parse import parse_qsl, urlsplit

import pytest

from nodeguard.kube.api import MERGE_PATCH, READ_TIMEOUT, Object, node_path
from nodeguard.kube.client import KubeClient
from nodeguard.kube.fake import FakeApi
from nodeguard.kube.informer import PAGE, Informer
from nodeguard.kube.lease import NODES_PATH
from nodeguard.model.clock import FakeClock
from nodeguard.model.errors import ApiGone, ApiUnavailable
from nodeguard.sim.apiserver import EmbeddedApiServer

Told = tuple[str, str | None, str | None]
WAIT = 10.0
MANY = 2 * PAGE + 3


class Script(FakeApi):
    """Empty lists, and one watch after the other; ``stop`` is set when there is none left."""

    def __init__(self, *watches: Callable[[], Iterator[Object]]) -> None:
        super().__init__()
        self._watches, self.lists = list(watches), 0

    def get(self, path: str, params: Mapping[str, str] | None = None, timeout: float = READ_TIMEOUT) -> Object:
        """An empty list."""
        self.lists += 1
        return {"items": [], "metadata": {"resourceVersion": "7"}}

    def watch(self, path: str, params: Mapping[str, str], stop: threading.Event) -> Iterator[Object]:
        """The next of the script."""
        if not self._watches:
            stop.set()
            return iter(())
        return self._watches.pop(0)()


def silent() -> Iterator[Object]:
    """A watch that ends without a word."""
    return iter(())


def gone() -> Iterator[Object]:
    """A watch whose version is forgotten already."""
    yield from ()
    raise ApiGone("too old", status=410)


def word_and_cut() -> Iterator[Object]:
    """A watch that has worked, and is then cut as a proxy does it."""
    yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    raise ApiUnavailable("cut")


def waited(api: Script) -> float:
    """Seconds that an informer spends waiting while it plays the script."""
    clock = FakeClock(boot=0.0)
    Informer(api, NODES_PATH, clock, reduce=label).run(lambda *_: None, threading.Event())
    return clock.boot()


def label(node: Object) -> str | None:
    """What is kept: one label; nothing of a Node without it."""
    value: str | None = (node["metadata"].get("labels") or {}).get("x")
    return value


def test_a_server_that_ends_every_watch_at_once_is_asked_ever_less() -> None:
    """It is no tight loop of requests: the waits double up to ten seconds."""
    assert 30.0 <= waited(Script(*[silent] * 8)) <= 60.0


def test_a_place_that_is_lost_at_once_again_is_listed_ever_less() -> None:
    """A whole list is dear: a list that worked is no reason to try again at once."""
    api = Script(*[gone] * 8)
    assert 30.0 <= waited(api) <= 60.0
    assert api.lists == 9


def test_a_watch_that_worked_is_opened_again_soon() -> None:
    """However often something in between has cut it before: the loop is blind for a fifth of a second, not for ten."""
    assert waited(Script(*[word_and_cut] * 20)) <= 20 * 0.2 + 1.0


def test_it_knows_whether_its_own_watch_is_alive() -> None:
    """Alive: heard lately, with a place to resume from. A failure ends that until the server's next word."""
    seen: list[bool] = []
    clock = FakeClock()

    def look(after: float = 0.0) -> None:
        clock.advance(after)
        seen.append(informer.healthy(clock.boot()))

    def good() -> Iterator[Object]:
        look()
        look(60.0)
        yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
        look(60.0)
        look(60.0)
        yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "10"}}}
        look()
        raise ApiUnavailable("cut")

    def again() -> Iterator[Object]:
        look()
        yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "11"}}}
        look()
        raise ApiGone("too old", status=410)

    class Watched(Script):
        def get(self, path: str, params: Mapping[str, str] | None = None, timeout: float = READ_TIMEOUT) -> Object:
            look()
            return super().get(path, params, timeout)

    informer = Informer(Watched(good, again), NODES_PATH, clock, reduce=label)
    look()
    informer.run(lambda *_: None, threading.Event())
    unsynced, unlisted, *followed = seen
    assert (unsynced, unlisted) == (False, False)
    assert followed == [True, True, True, False, True, False, True, False]


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    """An API server over HTTP."""
    with EmbeddedApiServer(bookmark_every=0.2) as running:
        yield running


@pytest.fixture
def api(server: EmbeddedApiServer, tmp_path: Path) -> Iterator[KubeClient]:
    """A client of it."""
    config = tmp_path / "kubeconfig"
    server.write_kubeconfig(config)
    client = KubeClient.from_kubeconfig(config)
    yield client
    client.close()


class Following:
    """An informer at work. A context manager; it can be entered again, and goes on where it was."""

    def __init__(self, api: KubeClient, **params: str) -> None:
        self.informer = Informer(api, NODES_PATH, FakeClock(), reduce=label, params=params)
        self.told: SimpleQueue[Told] = SimpleQueue()
        self.meanwhile: Callable[[], object] = lambda: None
        """Done on the informer's own thread whenever something is told."""

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.informer.run, args=(self._tell, self._stop))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT)
        assert not self._thread.is_alive()

    def _tell(self, key: str, old: str | None, new: str | None) -> None:
        self.meanwhile()
        self.told.put((key, old, new))

    def next(self, count: int = 1) -> list[Told]:
        """The next of what is told."""
        return [self.told.get(timeout=WAIT) for _ in range(count)]


def add(server: EmbeddedApiServer, name: str, value: str | None = "1") -> None:
    """Create a Node."""
    labels = {} if value is None else {"x": value}
    server.create(NODES_PATH, {"metadata": {"name": name, "labels": labels}})


def set_label(api: KubeClient, name: str, value: str | None) -> None:
    """Change what is kept of a Node, or with None take it away."""
    api.patch(node_path(name), {"metadata": {"labels": {"x": value}}}, MERGE_PATCH)


def lists(server: EmbeddedApiServer) -> list[tuple[int, dict[str, str]]]:
    """Status and query of the lists asked for."""
    asked = [(one.status, dict(parse_qsl(urlsplit(one.path).query))) for one in server.requests
             if one.method == "GET" and urlsplit(one.path).path == NODES_PATH]
    return [(status, query) for status, query in asked if "watch" not in query]


def test_a_large_collection_comes_in_pages_and_then_by_watch(server: EmbeddedApiServer, api: KubeClient) -> None:
    """Every object once, nothing of what does not matter, and then each change as it happens."""
    for number in range(MANY):
        add(server, f"n{number:04}")
    add(server, "dull", None)
    with Following(api) as following:
        assert following.informer.synced.wait(WAIT)
        assert following.next(MANY) == [(f"n{number:04}", None, "1") for number in range(MANY)]
        assert [query["limit"] for _, query in lists(server)] == [str(PAGE)] * 3
        set_label(api, "n0000", "2")
        api.patch(node_path("n0001"), {"metadata": {"labels": {"other": "y"}}}, MERGE_PATCH)
        set_label(api, "n0002", None)
        set_label(api, "dull", "3")
        api.delete(node_path("n0003"))
        assert following.next(4) == [
            ("n0000", "1", "2"), ("n0002", "1", None), ("dull", None, "3"), ("n0003", "1", None)]
        assert len(following.informer.items) == MANY - 1
        assert following.told.empty()


def test_what_happened_in_a_forgotten_time_is_told(server: EmbeddedApiServer, api: KubeClient) -> None:
    """It resumes where it was; the server has forgotten that time; a new list tells what is new, other and gone."""
    for name in ("gone", "kept", "other"):
        add(server, name)
    with Following(api) as following:
        following.next(3)
    api.delete(node_path("gone"))
    set_label(api, "other", "2")
    add(server, "new")
    server.compact()
    with following:
        assert following.next(3) == [("new", None, "1"), ("other", "1", "2"), ("gone", "1", None)]
        set_label(api, "kept", "5")
        assert following.next() == [("kept", "1", "5")]


def test_an_outage_costs_no_list(server: EmbeddedApiServer, api: KubeClient) -> None:
    """What happened while the server could not be reached is told by the watch that resumes."""
    add(server, "a")
    with Following(api) as following:
        following.next()
        server.pause()
        add(server, "b")
        server.resume()
        assert following.next() == [("b", None, "1")]
    assert len(lists(server)) == 1


def test_a_list_that_expires_between_its_pages_is_begun_again(server: EmbeddedApiServer, api: KubeClient) -> None:
    """Nothing is told as gone because a list was not whole."""
    for number in range(MANY):
        add(server, f"n{number:04}")
    with Following(api) as following:
        following.next(MANY)
    set_label(api, "n0000", "2")
    server.compact()
    pages = len(lists(server))

    def expire() -> None:
        set_label(api, "n0001", "2")
        server.compact()

    following.meanwhile = expire
    with following:
        assert following.next(2) == [("n0000", "1", "2"), ("n0001", "1", "2")]
        set_label(api, f"n{MANY - 1:04}", "2")
        assert following.next() == [(f"n{MANY - 1:04}", "1", "2")]
    assert len(following.informer.items) == MANY
    assert [status for status, _ in lists(server)[pages:]] == [200, 410, 200, 200, 200]


def test_a_selector_goes_with_every_request(server: EmbeddedApiServer, api: KubeClient) -> None:
    """An object that leaves the selection is told as gone."""
    add(server, "in", "1")
    add(server, "out", "9")
    with Following(api, labelSelector="x in (1,2)") as following:
        assert following.next() == [("in", None, "1")]
        set_label(api, "in", "2")
        set_label(api, "out", "8")
        set_label(api, "in", "9")
        assert following.next(2) == [("in", "1", "2"), ("in", "2", None)]
