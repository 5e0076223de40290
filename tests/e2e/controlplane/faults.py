"""What a proxy may do to a request, and what it remembers of each."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Collection


class Mode(enum.Enum):
    """What happens to every connection."""

    OK = "ok"
    """Forwarded."""
    REFUSE = "refuse"
    """Nothing listens; open connections are reset."""
    RESET = "reset"
    """Accepted and reset; open connections too."""
    HANG = "hang"
    """Accepted and never answered, as when a firewall has forgotten the connection.
    Connections that were open fall silent and stay so for good."""


class Break(enum.Enum):
    """What happens to one request, if it is not simply answered with a status."""

    RESET = "reset"
    """Reset before the server hears of it."""
    CUT_AFTER = "cut-after"
    """The server carries it out; the connection is reset before the client is told."""
    TRUNCATE = "truncate"
    """The client gets the head of the answer and half of the first piece, then a reset."""
    HANG = "hang"
    """Never answered, and never heard by the server."""


@dataclass(frozen=True)
class Seen:
    """One request that reached the proxy."""

    method: str
    target: str
    content_type: str
    body: bytes
    at: float
    """`time.monotonic` at its arrival."""

    @property
    def path(self) -> str:
        """The target without its query."""
        return urlsplit(self.target).path

    @property
    def is_watch(self) -> bool:
        """Whether it asks for a stream of events."""
        value = parse_qs(urlsplit(self.target).query).get("watch", ["0"])[0]
        return value.lower() in ("1", "true")


@dataclass
class Fault:
    """A fault for the next `left` requests that match."""

    does: Break | int
    """A break, or the status to answer with."""
    left: int
    methods: Collection[str] | None = None
    path: str = ""
    """Part of the target; empty matches all."""
    watches: bool | None = None
    """Only watches, or only others."""
    retry_after: int | None = None

    def matches(self, seen: Seen) -> bool:
        """Whether this fault is meant for `seen` and not used up."""
        return (
            self.left > 0
            and (self.methods is None or seen.method in self.methods)
            and self.path in seen.target
            and self.watches in (None, seen.is_watch)
        )


_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def status_answer(seen: Seen, code: int, retry_after: int | None) -> bytes:
    """A whole HTTP answer that carries a Kubernetes Status of `code`.

    410 to a watch is, as the API server does it, a stream with one ERROR event.
    """
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"injected by the test's proxy: {code}",
        "reason": _REASONS.get(code, ""),
        "code": code,
    }
    if code == 410 and seen.is_watch:
        event = {"type": "ERROR", "object": status}
        return _http(200, json.dumps(event).encode() + b"\n", None)
    return _http(code, json.dumps(status).encode(), retry_after)


def _http(code: int, body: bytes, retry_after: int | None) -> bytes:
    lines = [f"HTTP/1.1 {code} {_REASONS.get(code, 'OK')}", "Content-Type: application/json"]
    lines.append(f"Content-Length: {len(body)}")
    if retry_after is not None:
        lines.append(f"Retry-After: {retry_after}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
