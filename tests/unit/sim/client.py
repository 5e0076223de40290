"""A client of the embedded API server with nothing but the standard library."""

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPResponse
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from nodeguard.sim.apiserver import EmbeddedApiServer

NODE = "/api/v1/nodes/gpu-7"
STATUS = NODE + "/status"
PODS = "/api/v1/namespaces/default/pods"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
FAULT = {"type": "GpuFault", "status": "True", "reason": "Xid79"}
OURS = {"key": "nodeguard.io/unhealthy", "effect": "NoSchedule", "value": "GpuFault"}
THEIRS = {"key": "other/taint", "effect": "NoExecute"}


class Client:
    """One connection a request."""

    def __init__(self, server: EmbeddedApiServer, token: str | None = None) -> None:
        self._address = server.url.removeprefix("http://")
        self._token = server.token if token is None else token

    def open(self, method: str, path: str, body: object = None, kind: str = "application/json",
             **query: str | int) -> tuple[HTTPConnection, HTTPResponse]:
        connection = HTTPConnection(self._address, timeout=5)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        sent = None if body is None else json.dumps(body)
        connection.request(method, f"{path}?{urlencode(query)}" if query else path, sent, headers)
        return connection, connection.getresponse()

    def __call__(self, method: str, path: str, body: object = None, kind: str = "application/json",
                 **query: str | int) -> tuple[int, dict[str, Any]]:
        connection, response = self.open(method, path, body, kind, **query)
        try:
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def watch(self, path: str, most: int = 100, **query: str | int) -> list[dict[str, Any]]:
        """The events of a watch until the server ends it, or as many as asked for."""
        connection, response = self.open("GET", path, None, "application/json", watch="true", **query)
        try:
            return [json.loads(line) for line in islice(response, most)]
        finally:
            connection.close()


def version_of(item: Mapping[str, Any]) -> str:
    version: str = item["metadata"]["resourceVersion"]
    return version
