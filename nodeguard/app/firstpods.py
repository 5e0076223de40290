"""The moment between a fault that evicts the pods of a GPU and the answer which pods those are."""

from collections.abc import Iterable

from nodeguard.model.device import Device, kind_of
from nodeguard.model.fault import Fault
from nodeguard.model.sample import Batch, Pods

LONGEST = 0.05
"""Seconds that the Node's next words wait at most. Files and a driver that is well answer within a few milliseconds; of
the budget from the kernel line to the condition (p99 60 ms), what a driver that is not well may take."""


class FirstPods:
    """Holds the Node's next words back until the pods of every newly faulty GPU were looked for, or for 50 ms.

    In the annotation a fault of one device without pods means every accelerator pod of the node: told too early, it
    moves seven GPUs' pods for the sake of one. Condition and annotation never disagree, so they wait together. GPUs
    that fail one after another share one wait, and one that was waited for in vain is not waited for again.
    """

    def __init__(self, *, asked: bool) -> None:
        """``asked``: somebody looks for pods here, so that there is an answer to wait for."""
        self._asked = asked
        self._looked_for: frozenset[Device] = frozenset()
        self._in_vain: frozenset[Device] = frozenset()
        self._until: float | None = None

    def take(self, batch: Batch) -> None:
        """See whether this is an answer."""
        for fact in batch.facts:
            if isinstance(fact, Pods):
                self._looked_for = fact.looked_for

    def hold(self, faults: Iterable[Fault], now: float) -> bool:
        """Whether to tell these faults later: at the next answer, or after :meth:`left`."""
        unknown = frozenset(fault.device for fault in faults if self._asked and _needs_pods(fault))
        self._in_vain &= unknown
        awaited = unknown - self._looked_for - self._in_vain
        if not awaited:
            self._until = None
            return False
        self._until = now + LONGEST if self._until is None else self._until
        if now < self._until:
            return True
        self._until, self._in_vain = None, self._in_vain | awaited
        return False

    def left(self, now: float) -> float:
        """Seconds until what is held back is to be told; infinite where nothing is."""
        return float("inf") if self._until is None else max(self._until - now, 0.0)


def _needs_pods(fault: Fault) -> bool:
    return fault.pods is None and fault.scope == "device" and fault.effect == "evict" and kind_of(fault.device) == "gpu"
