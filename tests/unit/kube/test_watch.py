"""Following one Node through everything that ends a watch."""

import threading
from collections.abc import Iterator

import pytest

from nodeguard.kube.api import Object
from nodeguard.kube.fake import FakeApi
from nodeguard.kube.watch import NodeWatch
from nodeguard.model.clock import FakeClock
from nodeguard.model.errors import ApiUnavailable

NODE = "/api/v1/nodes/n1"


class Follower:
    """A watch in its own thread, and what it told."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.api.add(NODE, {"metadata": {"name": "n1", "uid": "u1", "labels": {}}})
        self.stop = threading.Event()
        self.told: list[str] = []
        self.changed = threading.Condition()
        watch = NodeWatch(self.api, "n1", FakeClock())
        self.thread = threading.Thread(target=watch.run, args=(self.on_node, self.stop))

    def on_node(self, node: Object) -> None:
        """Keep the label ``at``."""
        with self.changed:
            self.told.append(node["metadata"]["labels"].get("at", ""))
            self.changed.notify_all()

    def label(self, text: str) -> None:
        """Change the Node."""
        self.api.edit(NODE, lambda node: node["metadata"]["labels"].update(at=text))

    def wait_for(self, text: str) -> None:
        """Wait until the Node was told with this label."""
        with self.changed:
            assert self.changed.wait_for(lambda: text in self.told, 5), self.told


@pytest.fixture
def follower() -> Iterator[Follower]:
    """A follower that ends with the test."""
    one = Follower()
    yield one
    one.stop.set()
    one.thread.join(5)
    assert not one.thread.is_alive()


def test_tells_the_node_now_and_every_change(follower: Follower) -> None:
    """First the Node as it is, then each change in order."""
    follower.thread.start()
    follower.wait_for("")
    for text in "abc":
        follower.label(text)
    follower.wait_for("c")
    assert follower.told == ["", "a", "b", "c"]


def test_resumes_where_it_was(follower: Follower) -> None:
    """A watch that the server ends goes on from the last version, without reading again."""
    follower.thread.start()
    follower.wait_for("")
    follower.api.end_watches()
    follower.label("a")
    follower.wait_for("a")
    follower.api.end_watches()
    follower.label("b")
    follower.wait_for("b")
    assert follower.told == ["", "a", "b"]
    assert [one.method for one in follower.api.requests].count("GET") == 1


def test_reads_again_when_its_version_is_gone(follower: Follower) -> None:
    """410 costs a read, and the newest state is told."""
    follower.thread.start()
    follower.wait_for("")
    follower.label("a")
    follower.wait_for("a")
    follower.label("missed")
    follower.label("newest")
    follower.api.compact()
    follower.api.end_watches()
    follower.wait_for("newest")


def test_survives_errors_and_a_missing_node(follower: Follower) -> None:
    """Refused connections and a Node that is not there yet are waited for."""
    follower.api.fail("*", "/", ApiUnavailable("no answer"), times=20)
    node = follower.api.read(NODE)
    follower.api.remove(NODE)
    follower.thread.start()
    follower.api.add(NODE, node)
    follower.wait_for("")
    follower.api.remove(NODE)
    follower.api.add(NODE, {**node, "metadata": {**node["metadata"], "labels": {"at": "reborn"}}})
    follower.wait_for("reborn")
