"""Kubelet and container runtime, asked over their local endpoints. Every answer is waited for at most a moment."""

import http.client
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from nodeguard.model.device import NODE
from nodeguard.model.sample import Batch, Sample
from nodeguard.sources.host_netns import host_network

SOURCE = "kubelet"
PERIOD = 10.0
TIMEOUT = 0.4
"""Seconds for each of the two, so that both fit into the deadline of a poll."""

RUNTIME_SOCKETS = (
    "/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock",
    "/run/cri-dockerd.sock")
"""Where container runtimes listen, by their own defaults."""

# RFC 9113 section 3.4: a client begins with these octets and a SETTINGS frame, a server with a SETTINGS frame.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_FRAME_HEADER = 9
_SETTINGS = 4


class Endpoint(NamedTuple):
    """Where the kubelet says how it is."""

    host: str
    port: int
    path: str


def endpoint_of(url: str) -> Endpoint | None:
    """The parts of an ``http`` URL, which was checked before; None for an empty one."""
    parts = urlsplit(url)
    return Endpoint(parts.hostname or "", parts.port or 80, parts.path or "/") if url else None


def kubelet_state(endpoint: Endpoint, timeout: float = TIMEOUT) -> str:
    """``ok``, ``failing`` (it answers, but not well), or ``silent``."""
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout)
    try:
        connection.request("GET", endpoint.path)
        return "ok" if connection.getresponse().status == http.client.OK else "failing"
    except (OSError, http.client.HTTPException):
        return "silent"
    finally:
        connection.close()


def runtime_state(path: Path, timeout: float = TIMEOUT) -> str:
    """``ok`` if whoever listens there speaks first, as a gRPC server does; ``silent``.

    To be let in proves little: the kernel queues connections for a server that hangs.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as talk:
        talk.settimeout(timeout)
        try:
            talk.connect(str(path))
            talk.sendall(_HELLO)
            header = talk.recv(_FRAME_HEADER, socket.MSG_WAITALL)
        except (OSError, ValueError):
            return "silent"
        with suppress(OSError):
            talk.shutdown(socket.SHUT_RDWR)
    return "ok" if len(header) == _FRAME_HEADER and header[3] == _SETTINGS else "silent"


class KubeletPoll:
    """Asks both. See :class:`nodeguard.sources.polled.Poll`."""

    name = SOURCE
    period = PERIOD

    def __init__(self, proc_root: Path, endpoint: Endpoint | None, sockets: Sequence[str]) -> None:
        """``endpoint`` None: the kubelet is not asked. ``sockets``: of the runtime, as the host knows them."""
        self._proc_root, self._endpoint, self._sockets = proc_root, endpoint, tuple(sockets)
        self._answered: Path | None = None

    def poll(self, now: float) -> Batch:  # noqa: ARG002 # states need no time
        """See :class:`nodeguard.sources.polled.Poll`. What never answered here is rather not here at all."""
        samples = (Sample("host_kubelet_state", NODE, self._kubelet()),
                   Sample("host_runtime_state", NODE, self._runtime()))
        return Batch(source=SOURCE, samples=samples, complete=True)

    def _kubelet(self) -> str | None:
        if self._endpoint is None:
            return None
        with host_network(self._proc_root):
            return kubelet_state(self._endpoint)

    def _runtime(self) -> str | None:
        if self._answered is None:
            paths = (self._proc_root / "1/root" / one.lstrip("/") for one in self._sockets)
            self._answered = next((path for path in paths if _is_there(path)), None)
        return None if self._answered is None else runtime_state(self._answered)


def _is_there(path: Path) -> bool:
    try:
        return path.is_socket()
    except OSError:
        return False
