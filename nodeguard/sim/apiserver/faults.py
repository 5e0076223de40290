"""Faults told in advance: the next requests of a kind are answered with a failure instead of being carried out."""

import threading
from dataclasses import dataclass

from nodeguard.sim.apiserver.errors import Refusal


@dataclass(slots=True)
class _Fault:
    method: str
    path_prefix: str
    status: int
    retry_after: int | None
    left: int


class CutOff(Exception):  # noqa: N818 - an order to the transport
    """End the connection without an answer."""


class Faults:
    """Thread-safe list of faults to come; the first that fits a request is used up by it."""

    def __init__(self) -> None:
        self._faults: list[_Fault] = []
        self._lock = threading.Lock()

    def add(self, method: str, path_prefix: str, status: int, retry_after: int | None, count: int) -> None:
        """See :meth:`nodeguard.sim.apiserver.EmbeddedApiServer.fail_next`."""
        with self._lock:
            self._faults.append(_Fault(method.upper(), path_prefix, status, retry_after, count))

    def check(self, method: str, path: str) -> None:
        """Raise what was told for this request, if anything was: :class:`Refusal` or :class:`CutOff`."""
        with self._lock:
            fault = next((each for each in self._faults if _fits(each, method, path)), None)
            if fault is None:
                return
            fault.left -= 1
            if not fault.left:
                self._faults.remove(fault)
        if not fault.status:
            raise CutOff
        raise Refusal(fault.status, f"injected failure {fault.status}", retry_after=fault.retry_after)


def _fits(fault: _Fault, method: str, path: str) -> bool:
    return fault.method in {"*", method} and path.startswith(fault.path_prefix)
