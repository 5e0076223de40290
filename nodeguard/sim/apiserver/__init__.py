"""A small embedded Kubernetes API server for ``nodeguard demo`` and quick tests. It imitates; see server.py."""

from nodeguard.sim.apiserver.errors import Refusal
from nodeguard.sim.apiserver.handler import Request
from nodeguard.sim.apiserver.resources import RESOURCES, Resource
from nodeguard.sim.apiserver.server import EmbeddedApiServer

__all__ = ["RESOURCES", "EmbeddedApiServer", "Refusal", "Request", "Resource"]
