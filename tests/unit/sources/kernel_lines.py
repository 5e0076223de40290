"""A parser and small makers for tests of the kernel log."""

from collections import Counter
from collections.abc import Mapping, Sequence

from nodeguard.model.device import NODE
from nodeguard.model.sample import Batch, Event, Gap, Told
from nodeguard.sources.kmsg_records import KernelLog


class FaultLines:
    """Takes the lines ``FAULT <word>;`` as events, and knows ``FAULT`` alone as its driver's."""

    def __init__(self) -> None:
        self.taken = 0

    def feed(self, text: str, stamp: float | None) -> Told | None:
        if not text.startswith("FAULT"):
            return None
        if not text.endswith("!"):
            return Told()
        self.taken += 1
        return Told(events=(Event("gpu_xid", NODE, {"code": self.taken}, text=text),))

    def state(self) -> dict[str, object]:
        return {"taken": self.taken}

    def restore(self, state: Mapping[str, object]) -> None:
        taken = state.get("taken")
        self.taken = taken if isinstance(taken, int) else 0


def record(sequence: int, text: str = "something else", *, priority: int = 4, flag: str = "-", more: str = "") -> bytes:
    return f"{priority},{sequence},{sequence * 1000},{flag}{more};{text}\n".encode()


def read(log: KernelLog, raws: Sequence[bytes], size: int = 3) -> tuple[list[Event], Counter[str], int]:
    """Events, counts and the sum of gaps of feeding ``raws`` a few at a time."""
    batches = [log.feed(raws[at:at + size]) for at in range(0, len(raws), size)]
    return summed([*batches, log.drain()])


def summed(batches: Sequence[Batch | None]) -> tuple[list[Event], Counter[str], int]:
    events: list[Event] = []
    counts: Counter[str] = Counter()
    lost = 0
    for batch in batches:
        if batch is None:
            continue
        counts.update(batch.counts)
        for told in (Told(events=batch.events, facts=batch.facts), *batch.then):
            events += told.events
            lost += sum(fact.lost for fact in told.facts if isinstance(fact, Gap))
    return events, counts, lost
