"""A proxy that kills the loop at one of its writes: once the server has done it, before the loop is told; or before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .controlplane.certs import Authority
from .controlplane.faults import Break, Fault, Seen
from .controlplane.proxy import FaultProxy

if TYPE_CHECKING:
    from .agents import AgentProcess
    from .controlplane.cluster import Cluster

_WRITES = ("POST", "PUT", "PATCH", "DELETE")


def is_deed(seen: Seen) -> bool:
    """Whether this request changes something that another loop must find: no Event, no mere renewal of the Lease."""
    if seen.method not in _WRITES or "/events" in seen.path or "/configmaps/nodeguard-incidents" in seen.path:
        return False
    return "/leases" not in seen.path or b"nodeguard.io/budget" in seen.body


class DeadlyProxy(FaultProxy):
    """Kills ``victim`` at deed number ``at`` (from 1). A context manager."""

    def __init__(self, cluster: Cluster) -> None:
        authority = Authority(cluster.directory / "deadly-proxy", "nodeguard-deadly-proxy-ca")
        super().__init__(cluster.url, cluster.ca, authority.server("proxy"), ca=authority.bundle)
        self.victim: AgentProcess | None = None
        self.at = 0
        self.before = False
        """Kill before the server hears of it."""
        self.done: list[Seen] = []
        """Deeds that the server was asked for, oldest first."""

    def spare(self) -> None:
        """Kill nobody any more."""
        self.victim = None

    def begin(self, victim: AgentProcess, at: int, *, before: bool) -> None:
        """Count anew."""
        self.done.clear()
        self.victim, self.at, self.before = victim, at, before

    def arrived(self, seen: Seen) -> Fault | None:
        """See :class:`FaultProxy`."""
        if is_deed(seen):
            if self.before and len(self.done) + 1 == self.at and self.victim is not None:
                self._kill()
                return Fault(Break.RESET, 1)
            self.done.append(seen)
        return super().arrived(seen)

    def answered(self, seen: Seen, status: int) -> None:
        """See :class:`FaultProxy`."""
        if not self.before and self.victim is not None and len(self.done) >= self.at and is_deed(seen):
            self._kill()
        super().answered(seen, status)

    def _kill(self) -> None:
        victim, self.victim = self.victim, None
        if victim is not None:
            victim.kill()

    def brief(self) -> str:
        """The deeds, a line each."""
        return "\n".join(f"{seen.method} {seen.path} {seen.body[-200:]!r}" for seen in self.done)

    def evictions(self) -> list[str]:
        """UIDs of the pods whose eviction was asked for."""
        return [json.loads(seen.body)["deleteOptions"]["preconditions"]["uid"] for seen in self.done
                if seen.path.endswith("/eviction")]

    def suspensions(self, path: str, *, suspend: bool = True) -> int:
        """How often the owner at ``path`` was asked to be suspended, or resumed."""
        return sum(1 for seen in self.done if seen.path == path and seen.method == "PATCH"
                   and json.loads(seen.body).get("spec", {}).get("suspend") is suspend)
