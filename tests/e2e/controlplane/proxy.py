"""A proxy between a client and the API server that breaks on command.

It terminates TLS with a certificate of its own and forwards HTTP/1.1 with every
header as it came, so bearer tokens pass; client certificates cannot. Watches are
streamed piece by piece. Threads and the standard library only.

    with cluster.proxy() as proxy:
        config = cluster.kubeconfig_for_token(token, server=proxy.url, ca=proxy.ca)
        proxy.fail_next(status=429, retry_after=1, count=3, methods={"PATCH"})
        proxy.break_next(Break.CUT_AFTER, methods={"PATCH"})
        proxy.mode = "refuse"
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Self

from .faults import Break, Fault, Mode, Seen
from .process import free_port
from .relay import Relay

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from .certs import KeyPair

_BACKLOG = 128


class FaultProxy:
    """The proxy; a context manager. Its methods may be called from any thread."""

    def __init__(self, upstream: str, upstream_ca: Path | None, serving: KeyPair, ca: Path) -> None:
        self.ca = ca
        self.delay = 0.0
        """Seconds added before each request is handled."""
        self._upstream = upstream
        self._upstream_tls = ssl.create_default_context(
            cafile=None if upstream_ca is None else str(upstream_ca)
        )
        self._serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._serving.load_cert_chain(str(serving.cert), str(serving.key))
        self._port = free_port()
        self._lock = threading.RLock()
        self._mode = Mode.OK
        self._listener: socket.socket | None = None
        self._relays: set[Relay] = set()
        self._faults: list[Fault] = []
        self._seen: list[Seen] = []
        self._answers: list[tuple[Seen, int]] = []
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        """What the client under test is given; the same through every outage."""
        return f"https://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Reset every connection and end every thread."""
        self._stop_listening()
        self.reset_connections()
        for thread in list(self._threads):
            thread.join(timeout=5)

    @property
    def mode(self) -> Mode:
        """What happens to every connection; set it to a `Mode` or its value."""
        return self._mode

    @mode.setter
    def mode(self, wanted: Mode | str) -> None:
        mode = Mode(wanted)
        with self._lock:
            self._mode = mode
            if mode is Mode.HANG:
                for relay in self._relays:
                    relay.fall_silent()
        if mode is Mode.REFUSE:
            self._stop_listening()
        else:
            self._listen()
        if mode in (Mode.REFUSE, Mode.RESET):
            self.reset_connections()

    def reset_connections(self) -> None:
        """Reset every open connection, watches included; new ones are served."""
        with self._lock:
            relays = list(self._relays)
        for relay in relays:
            relay.end()

    def fail_next(
        self,
        status: int,
        *,
        count: int = 1,
        methods: Collection[str] | None = None,
        path: str = "",
        watches: bool | None = None,
        retry_after: int | None = None,
    ) -> None:
        """Answer the next `count` matching requests with `status`; the server hears nothing.

        `path` is a part of the target, query included; `watches` picks watches or others.
        """
        self._add(Fault(status, count, methods, path, watches, retry_after))

    def break_next(
        self,
        how: Break,
        *,
        count: int = 1,
        methods: Collection[str] | None = None,
        path: str = "",
        watches: bool | None = None,
    ) -> None:
        """Break the next `count` matching requests in the manner `how`."""
        self._add(Fault(how, count, methods, path, watches))

    def heal(self) -> None:
        """Drop all faults not yet used, any delay, and go back to mode ok."""
        with self._lock:
            self._faults.clear()
        self.delay = 0.0
        self.mode = Mode.OK

    def requests(self, method: str | None = None, path: str = "") -> list[Seen]:
        """The requests that arrived so far, broken ones included, oldest first."""
        with self._lock:
            seen = list(self._seen)
        return [one for one in seen if method in (None, one.method) and path in one.target]

    def answers(self) -> list[tuple[Seen, int]]:
        """The requests that were answered, and the statuses the client was given."""
        with self._lock:
            return list(self._answers)

    def forget_requests(self) -> None:
        """Empty what `requests` and `answers` return."""
        with self._lock:
            self._seen.clear()
            self._answers.clear()

    def arrived(self, seen: Seen) -> Fault | None:
        """For `Relay`: record `seen` and use up a fault that matches it."""
        with self._lock:
            self._seen.append(seen)
            for fault in self._faults:
                if fault.matches(seen):
                    fault.left -= 1
                    return fault
        return None

    def answered(self, seen: Seen, status: int) -> None:
        """For `Relay`: the client gets its answer now."""
        with self._lock:
            self._answers.append((seen, status))

    def _add(self, fault: Fault) -> None:
        with self._lock:
            self._faults = [one for one in self._faults if one.left > 0] + [fault]

    def _listen(self) -> None:
        with self._lock:
            if self._listener is not None:
                return
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self._port))
            listener.listen(_BACKLOG)
            self._listener = listener
        self._spawn(self._accept, listener)

    def _stop_listening(self) -> None:
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            # Wakes the accepting thread, which closes it.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                try:
                    raw, _ = listener.accept()
                except OSError:
                    return
                self._admit(raw)

    def _admit(self, raw: socket.socket) -> None:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        relay = Relay(raw, self._serving, self._upstream, self._upstream_tls, self)
        with self._lock:
            self._relays.add(relay)
            mode = self._mode
        if mode is Mode.HANG:
            relay.fall_silent()
        elif mode is Mode.RESET:
            relay.end_on_data()
        elif mode is Mode.REFUSE:
            relay.end()
        self._spawn(self._serve, relay)

    def _serve(self, relay: Relay) -> None:
        try:
            relay.serve()
        finally:
            with self._lock:
                self._relays.discard(relay)

    def _spawn(self, target: object, argument: object) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=(argument,), daemon=True)
        with self._lock:
            thread.start()
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
