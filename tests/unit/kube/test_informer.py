"""A collection followed whole: pages, watch, 410 and what vanished meanwhile."""

import threading
from collections.abc import Callable, Iterator, Mapping

from nodeguard.kube.api import READ_TIMEOUT, Object
from nodeguard.kube.fake import FakeApi
from nodeguard.kube.informer import Informer
from nodeguard.model.clock import FakeClock
from nodeguard.model.errors import ApiGone, ApiUnavailable

PATH = "/api/v1/pods"


class Pages(FakeApi):
    """Serves lists of two a page, and a script of watches."""

    def __init__(self, lists: list[list[str]], watches: list[Callable[[], Iterator[Object]]], done: int) -> None:
        super().__init__()
        self._lists, self._watches, self._done = lists, watches, done
        self._listed = 0
        self.params: list[dict[str, str]] = []

    def get(self, path: str, params: Mapping[str, str] | None = None, timeout: float = READ_TIMEOUT) -> Object:
        """One page."""
        names = self._lists[min(self._listed, len(self._lists) - 1)]
        start = int((params or {}).get("continue", "0"))
        more = start + 2 < len(names)
        self._listed += not more
        return {"items": [thing(name) for name in names[start:start + 2]],
                "metadata": {"resourceVersion": "7", **({"continue": str(start + 2)} if more else {})}}

    def watch(self, path: str, params: Mapping[str, str], stop: threading.Event) -> Iterator[Object]:
        """The next of the script."""
        self.params.append(dict(params))
        if len(self.params) > self._done:
            stop.set()
            return iter(())
        return self._watches[len(self.params) - 1]()


def thing(name: str, version: str = "7", **more: str) -> Object:
    """An object."""
    return {"metadata": {"name": name, "namespace": "ns", "resourceVersion": version}, **more}


def follow(api: Pages) -> tuple[list[tuple[str, object, object]], Informer[str]]:
    """Everything told until the script ends."""
    told: list[tuple[str, object, object]] = []
    informer: Informer[str] = Informer(
        api, PATH, FakeClock(), reduce=lambda one: None if one["metadata"]["name"] == "dull" else one.get("value", "-"))
    stop = threading.Event()
    informer.run(lambda key, old, new: told.append((key, old, new)), stop)
    return told, informer


def test_pages_then_changes() -> None:
    """Every page is read; equal values are no news; what does not matter is not kept."""
    def script() -> Iterator[Object]:
        yield {"type": "MODIFIED", "object": thing("a", "8")}
        yield {"type": "MODIFIED", "object": thing("a", "9", value="x")}
        yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}}
        yield {"type": "DELETED", "object": thing("b", "13")}
    api = Pages([["a", "b", "c", "dull", "e"]], [script], done=1)
    told, informer = follow(api)
    assert told == [("ns/a", None, "-"), ("ns/b", None, "-"), ("ns/c", None, "-"), ("ns/e", None, "-"),
                    ("ns/a", "-", "x"), ("ns/b", "-", None)]
    assert informer.items == {"ns/a": "x", "ns/c": "-", "ns/e": "-"}
    assert informer.synced.is_set()
    assert [one["resourceVersion"] for one in api.params] == ["7", "13"]


def test_after_410_what_vanished_is_told() -> None:
    """The new list is compared with what was known."""
    def gone() -> Iterator[Object]:
        yield from ()
        raise ApiGone("too old", status=410)
    told, informer = follow(Pages([["a", "b"], ["b", "c"]], [gone], done=1))
    assert told == [("ns/a", None, "-"), ("ns/b", None, "-"), ("ns/c", None, "-"), ("ns/a", "-", None)]
    assert informer.failure == ""


def test_a_broken_watch_goes_on_where_it_was() -> None:
    """No second list; the failure is said until the server speaks again."""
    def broken() -> Iterator[Object]:
        yield {"type": "ADDED", "object": thing("z", "9")}
        raise ApiUnavailable("cut")
    api = Pages([["a"]], [broken], done=1)
    told, informer = follow(api)
    assert told[-1] == ("ns/z", None, "-")
    assert [one["resourceVersion"] for one in api.params] == ["7", "9"]
    assert informer.failure == "cut"
