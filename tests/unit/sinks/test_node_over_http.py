"""Writer, watch and client together against the embedded API server."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeguard.kube.client import KubeClient
from nodeguard.kube.watch import NodeWatch
from nodeguard.model.clock import SystemClock
from nodeguard.sim.apiserver import EmbeddedApiServer
from nodeguard.sinks.events import EventWriter
from nodeguard.sinks.node import NodeWriter

from .rig import FAULTY, HEALTHY, NODE_PATH, OWN_TAINT
from .test_events import opened


class Cluster:
    """An API server with one Node, a client, and the agent's threads towards it."""

    def __init__(self, server: EmbeddedApiServer, folder: Path) -> None:
        self.server = server
        server.create("/api/v1/nodes", {"metadata": {"name": "gpu-7"}, "spec": {"taints": [
            {"key": "X", "effect": "NoSchedule"}]}})
        server.write_kubeconfig(folder / "kubeconfig")
        self.client = KubeClient.from_kubeconfig(folder / "kubeconfig")
        self.stop = threading.Event()
        self.writer = NodeWriter(self.client, "gpu-7", SystemClock())
        self.events = EventWriter(self.client, "gpu-7", SystemClock())
        watch = NodeWatch(self.client, "gpu-7")
        self.threads = [
            threading.Thread(target=self.writer.run, args=(self.stop,)),
            threading.Thread(target=self.events.run, args=(self.stop,)),
            threading.Thread(target=watch.run, args=(self.writer.observe, self.stop)),
        ]

    @property
    def taints(self) -> list[str]:
        """Taints as ``key=value:effect``."""
        taints = self.server.objects[NODE_PATH]["spec"].get("taints") or ()
        return [f"{one['key']}={one.get('value', '')}:{one['effect']}" for one in taints]


def wait_for(true: Callable[[], Any]) -> None:
    """Wait for at most five seconds."""
    deadline = time.monotonic() + 5
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose threads end with the test, within two seconds."""
    with EmbeddedApiServer() as server:
        one = Cluster(server, tmp_path)
        for thread in one.threads:
            thread.start()
        yield one
        one.stop.set()
        for thread in one.threads:
            thread.join(2)
        assert not any(thread.is_alive() for thread in one.threads)
        one.client.close()


def test_fault_recovery_drift_and_outage(cluster: Cluster) -> None:
    """A fault and its Event arrive, a stolen taint returns, and an outage ends in the last state."""
    cluster.writer.publish(FAULTY)
    cluster.events.announce([opened()], "b1")
    wait_for(lambda: OWN_TAINT in cluster.taints)
    wait_for(lambda: any("events" in path for path in cluster.server.objects))
    cluster.client.patch(NODE_PATH, {"spec": {"taints": [{"key": "Y", "effect": "NoSchedule"}]}},
                         "application/merge-patch+json")
    wait_for(lambda: cluster.taints == ["Y=:NoSchedule", OWN_TAINT])
    cluster.server.pause()
    cluster.writer.publish(HEALTHY)
    wait_for(lambda: cluster.writer.status.last_error)
    cluster.server.resume()
    wait_for(lambda: cluster.taints == ["Y=:NoSchedule"])
    wait_for(lambda: cluster.writer.status.pending_since is None)
