"""The Kubernetes API over HTTP. The only module that imports ``kubernetes``, and of it only the raw request.

Typed classes would cost 25 MB of memory and refuse objects they do not know (kubernetes-client/python#1733), and
discovery would cost three requests per agent at start; so dictionaries go in and out, and paths are written out.
"""

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from urllib3.exceptions import HTTPError, ProtocolError

from nodeguard import __version__
from nodeguard.kube.api import READ_TIMEOUT, Object
from nodeguard.kube.lean import without_unused
from nodeguard.model.errors import (
    ApiConflict,
    ApiError,
    ApiGone,
    ApiNotFound,
    ApiRefused,
    ApiUnavailable,
    UserError,
)

with without_unused():
    from kubernetes.client import ApiClient, Configuration
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config import ConfigException, kube_config
    from kubernetes.dynamic import DynamicClient

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's token and the cluster's certificate authority."""

_BAD_KUBECONFIG: tuple[type[Exception], ...] = (
    ConfigException, HTTPError, ValueError, TypeError, LookupError, AttributeError,
    kube_config.yaml.YAMLError,  # type: ignore[attr-defined]
)
"""The loader indexes into whatever the file holds. Only ``config`` imports yaml, so its error is named through it."""

_CONNECTIONS = 64
"""Kept open between requests, at most; the library's own limit is five a CPU, and it warns of each one above."""
_CONNECT_TIMEOUT = 3.0
_WATCH_SILENCE = 90.0
"""An API server sends a bookmark each minute to a watcher that asked for them; longer silence is a dead connection."""
_STOP_CHECK = 0.25
_REPEATABLE = frozenset({"GET", "PUT", "PATCH"})
"""Sent twice, these end in the same object, or in a conflict that the caller resolves anyhow."""


class KubeClient:
    """An :class:`nodeguard.kube.api.Api` over HTTPS. Safe to share between threads.

    The library's own retries are off, because they would hide seconds of latency; only a connection that died while
    it was idle (an API server closes it after 90 s) costs one silent second try.
    """

    def __init__(self, configuration: Configuration) -> None:
        configuration.retries = False
        configuration.connection_pool_maxsize = _CONNECTIONS
        client = ApiClient(configuration)
        client.user_agent = f"nodeguard/{__version__}"
        self._dynamic: Any = DynamicClient(  # type: ignore[no-untyped-call]
            client, discoverer=lambda _client, _cache_file: None)

    @classmethod
    def from_kubeconfig(cls, path: Path) -> "KubeClient":
        """A client for the current context of a kubeconfig file. UserError: it cannot be used."""
        configuration = Configuration(host="")
        try:
            path.read_bytes()
            kube_config.load_kube_config(  # type: ignore[no-untyped-call]
                str(path), client_configuration=configuration, persist_config=False)
        except OSError as error:
            raise UserError(f"{path}: cannot read this kubeconfig: {error.strerror}; give another file") from error
        except _BAD_KUBECONFIG as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{path}: not a usable kubeconfig: {reason}; check its current context") from error
        if not configuration.host:
            raise UserError(f"{path}: the cluster of the current context names no server; add cluster.server")
        return cls(configuration)

    @classmethod
    def in_cluster(cls, folder: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> "KubeClient":
        """A client with the pod's service account. UserError: this is not a pod, or it has no token."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise UserError("not in a pod: KUBERNETES_SERVICE_HOST and _PORT are not set; give --kubeconfig FILE")
        configuration = Configuration(host=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")
        configuration.ssl_ca_cert = str(folder / "ca.crt")
        token = _TokenFile(folder / "token")
        try:
            (folder / "ca.crt").read_bytes()
            token.refresh(configuration)
        except OSError as error:
            raise UserError(
                f"{error.filename}: cannot read the pod's service account: {error.strerror}; "
                "set automountServiceAccountToken: true") from error
        configuration.refresh_api_key_hook = token.refresh  # type: ignore[assignment]
        return cls(configuration)

    def get(self, path: str, params: Mapping[str, str] | None = None, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`nodeguard.kube.api.Api`."""
        return self._call("GET", path, params=params, timeout=timeout)

    def post(self, path: str, body: Object, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`nodeguard.kube.api.Api`."""
        return self._call("POST", path, body=body, timeout=timeout)

    def put(self, path: str, body: Object, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`nodeguard.kube.api.Api`."""
        return self._call("PUT", path, body=body, timeout=timeout)

    def patch(self, path: str, body: Object, content_type: str, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`nodeguard.kube.api.Api`."""
        return self._call("PATCH", path, body=body, content_type=content_type, timeout=timeout)

    def delete(self, path: str, body: Object | None = None, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`nodeguard.kube.api.Api`."""
        return self._call("DELETE", path, body=body, timeout=timeout)

    def watch(self, path: str, params: Mapping[str, str], stop: threading.Event) -> Iterator[Object]:
        """See :class:`nodeguard.kube.api.Api`."""
        query = {"watch": "true", "allowWatchBookmarks": "true", **params}
        with _translated(f"watch {path}"):
            response = self._request("GET", path, params=query, timeout=_WATCH_SILENCE)
        with _hung_up_on(stop, response):
            try:
                with _translated(f"watch {path}"):
                    yield from map(_watch_event, _lines(response.stream(None)))
            except ApiUnavailable:
                if not stop.is_set():
                    raise

    def close(self) -> None:
        """Close the idle connections; the client can still be used."""
        self._dynamic.client.close()

    def _call(self, method: str, path: str, **request: Any) -> Object:
        with _translated(f"{method} {path}"):
            try:
                data = self._request(method, path, **request).data
            except ProtocolError:
                if method not in _REPEATABLE:
                    raise
                data = self._request(method, path, **request).data
            return _object(data)

    def _request(
        self, method: str, path: str, *, timeout: float, params: Mapping[str, str] | None = None, **sent: object
    ) -> Any:
        return self._dynamic.request(
            method, path, serialize=False, query_params=list((params or {}).items()),
            _request_timeout=(min(_CONNECT_TIMEOUT, timeout), timeout), **sent)


class _TokenFile:
    """The pod's token, read anew for every request: the kubelet replaces it before it expires."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def refresh(self, configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {self._path.read_text().strip()}"


def connect(kubeconfig: Path | None) -> KubeClient | None:
    """A client for ``kubeconfig`` if given, else for the pod's service account, else None. UserError as above."""
    if kubeconfig is not None:
        return KubeClient.from_kubeconfig(kubeconfig)
    return KubeClient.in_cluster() if os.environ.get("KUBERNETES_SERVICE_HOST") else None


@contextmanager
def _translated(deed: str) -> Iterator[None]:
    try:
        yield
    except ApiException as error:
        raise _refusal(deed, error) from error
    except (HTTPError, OSError, ConfigException) as error:
        raise ApiUnavailable(f"{deed}: no answer from the API server: {error}") from error


def _refusal(deed: str, error: ApiException) -> ApiError:
    status = error.status or 0
    text = f"{deed}: {status} {error.reason}: {_message(error.body)}"
    kind = _KINDS.get(status)
    if kind is None:
        kind = ApiRefused if 400 <= status < 500 else ApiUnavailable
    return kind(text, status=status, retry_after=_seconds((error.headers or {}).get("Retry-After")))


_KINDS: Mapping[int, type[ApiError]] = {
    404: ApiNotFound, 408: ApiUnavailable, 409: ApiConflict, 410: ApiGone, 429: ApiUnavailable,
}


def _message(body: str | None) -> str:
    try:
        status = json.loads(body or "")
    except ValueError:
        return (body or "").strip()[:200]
    return str(status.get("message", "")) if isinstance(status, dict) else ""


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _object(data: bytes) -> Object:
    try:
        answer = json.loads(data)
    except ValueError as error:
        raise ApiUnavailable("the API server's answer is not JSON; is it an API server?") from error
    if not isinstance(answer, dict):
        raise ApiUnavailable("the API server's answer is not a JSON object; is it an API server?")
    return answer


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines of a stream, however it was cut into chunks."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from filter(None, lines)


def _watch_event(line: bytes) -> Object:
    event = _object(line)
    if event.get("type") != "ERROR":
        return event
    status = event.get("object")
    code = status.get("code", 0) if isinstance(status, dict) else 0
    kind = ApiGone if code == 410 else ApiUnavailable
    raise kind(f"the watch was ended: {status}", status=code)


@contextmanager
def _hung_up_on(stop: threading.Event, response: Any) -> Iterator[None]:
    """Let ``stop`` end a read that blocks: only shutting the socket down from another thread does."""
    done = threading.Event()

    def guard() -> None:
        while not done.wait(_STOP_CHECK):
            if stop.is_set():
                response.shutdown()
                return

    threading.Thread(target=guard, name="watch-guard", daemon=True).start()
    try:
        yield
    finally:
        done.set()
        response.close()
