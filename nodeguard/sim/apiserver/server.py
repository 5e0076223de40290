"""The embedded API server as one object: start, stop, faults, pauses, and what it saw."""

import copy
import json
import secrets
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from nodeguard.sim.apiserver.api import Answer, Api, Call
from nodeguard.sim.apiserver.errors import Refusal
from nodeguard.sim.apiserver.faults import Faults
from nodeguard.sim.apiserver.handler import Handler, Request
from nodeguard.sim.apiserver.resources import RESOURCES, Resource, Table
from nodeguard.sim.apiserver.store import Store
from nodeguard.sim.apiserver.watching import Event, watch
from nodeguard.sinks.http import TrackedServer

NAMESPACES = ("default", "kube-system", "kube-node-lease", "nodeguard")
"""There from the start."""

MAX_CONNECTIONS = 1024
RECORDED_REQUESTS = 100_000


class EmbeddedApiServer:
    """A Kubernetes API server in this process, on a free port of 127.0.0.1, without TLS; a context manager.

    It imitates: enough for ``nodeguard demo`` and quick tests, and nothing is proved by it alone. ``history`` is the
    number of changes from which watches can resume. ``anonymous`` lets requests without a token in: kubectl sends
    none over plain HTTP.
    """

    def __init__(
        self, *, resources: Iterable[Resource] = RESOURCES, history: int = 1000, bookmark_every: float = 10.0,
        anonymous: bool = False,
    ) -> None:
        self.token = secrets.token_urlsafe(16)
        self._anonymous = anonymous
        self._bookmark_every = bookmark_every
        self._table = Table(resources)
        self._store = Store(history)
        self._api = Api(self._store, self._table)
        self._faults = Faults()
        self._requests: deque[Request] = deque(maxlen=RECORDED_REQUESTS)
        self._open = threading.Event()
        self._closing = threading.Event()
        self._serving: tuple[TrackedServer, threading.Thread] | None = None
        self._port = 0
        for name in NAMESPACES:
            self.create("/api/v1/namespaces", {"metadata": {"name": name}})

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end. Known after the start."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def requests(self) -> tuple[Request, ...]:
        """The newest 100,000 requests, oldest first."""
        return tuple(self._requests)

    @property
    def objects(self) -> dict[str, dict[str, Any]]:
        """A copy of every object, by its URL path (``/api/v1/nodes/NAME``)."""
        return {_path(resource, *key): copy.deepcopy(item)
                for (resource, key), item in self._store.everything().items()}

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object in the collection at ``path`` without a request. Raises :class:`Refusal`."""
        return dict(self._api.answer(Call("POST", path, {}, body=json.dumps(body).encode())).body)

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig (in JSON, which is YAML) with the URL and the token, readable by this user only."""
        name = "nodeguard-sim"
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {"token": self.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")

    def fail_next(
        self, *, method: str = "*", path_prefix: str = "/", status: int, retry_after: int | None = None, count: int = 1,
    ) -> None:
        """Answer the next ``count`` fitting requests with ``status``; 0 cuts the connection without an answer."""
        self._faults.add(method, path_prefix, status, retry_after, count)

    def compact(self) -> None:
        """Forget the history: every watch that resumes from before now, or lags, is told 410."""
        self._store.forget()

    def pause(self, how: Literal["refuse", "hang"] = "refuse") -> None:
        """Be away: refuse connections and cut the open ones, or take requests and let them wait for :meth:`resume`.

        A hanging pause leaves watches that are already running alone.
        """
        if how == "refuse":
            self._stop()
        else:
            self._open.clear()

    def resume(self) -> None:
        """Be back, on the same port, with the same objects."""
        if self._serving is None:
            self._start()
        self._open.set()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def admit(self, call: Call, authorization: str) -> None:
        """See :class:`nodeguard.sim.apiserver.handler.Backend`."""
        self._open.wait()
        if self._closing.is_set():
            raise ConnectionAbortedError
        allowed = {f"Bearer {self.token}", *([""] if self._anonymous else [])}
        if authorization not in allowed:
            raise Refusal(401, "Unauthorized")
        self._faults.check(call.method, call.path)

    def answer(self, call: Call) -> Answer:
        """See :class:`nodeguard.sim.apiserver.handler.Backend`."""
        return self._api.answer(call)

    def watch(self, call: Call) -> Iterator[Event | None]:
        """See :class:`nodeguard.sim.apiserver.handler.Backend`."""
        target = self._table.find(call.path)
        if target.name:
            raise Refusal(400, "watch one object with fieldSelector=metadata.name=NAME on its collection")
        return watch(self._store, target, call.query, self._closing.is_set, self._bookmark_every)

    def record(self, request: Request) -> None:
        """See :class:`nodeguard.sim.apiserver.handler.Backend`."""
        self._requests.append(request)

    def _start(self) -> None:
        self._closing.clear()
        self._open.set()
        handler = type("_BoundHandler", (Handler,), {"backend": self})
        server = TrackedServer(("127.0.0.1", self._port), handler, MAX_CONNECTIONS)
        self._port = server.server_port
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="sim-apiserver", daemon=True)
        self._serving = (server, thread)
        thread.start()

    def _stop(self) -> None:
        if self._serving is None:
            return
        server, thread = self._serving
        self._serving = None
        self._closing.set()
        self._open.set()
        server.shutdown()
        server.server_close()
        self._store.wake()
        server.finish(5.0)
        thread.join()


def _path(resource: Resource, namespace: str, name: str) -> str:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{place}/{resource.plural}/{name}"
