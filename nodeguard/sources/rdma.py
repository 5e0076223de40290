"""RDMA ports as the kernel shows them below ``/sys/class/infiniband``: InfiniBand and RoCE, of any vendor.

State, physical state, rate and ``link_downed`` are read every second, the other counters, the link layer and what the
port is for every ten. The source remembers what no file tells: which ports were here, under which PCI address, and
whether a port was ever up since the agent began to look. It judges nothing.

A port that is not there counts as an empty poll of all its series, so it is unknown, and gone, after three; a file
that cannot be read once is only unknown. An HCA is its PCI address: under another name it is told as renamed.
"""

from collections.abc import Iterable

from nodeguard.model.device import NODE, Device, rdma_port
from nodeguard.model.sample import Batch, Fact, Missed, Present, Renamed, Sample, SourceState
from nodeguard.sources.rdma_files import AWAY
from nodeguard.sources.rdma_hca import Hca, slot_of
from nodeguard.sources.rdma_peers import compare
from nodeguard.sources.rdma_port import Port
from nodeguard.sources.rdma_role import CLASS, Roles
from nodeguard.sources.tree import Tree

SOURCE = "rdma"
SLOW_SECONDS = 10.0
POLLS_UNTIL_GONE = 3
_SLOTS_LIMIT = 1024


class RdmaPoll:
    """Reads every HCA. Implements :class:`nodeguard.sources.polled.Poll`."""

    name = SOURCE
    period = 1.0

    def __init__(self, tree: Tree, *, proc: Tree | None = None, exclude: Iterable[str] = (),
                 expected: Iterable[Device] = (), slow_every: float = SLOW_SECONDS) -> None:
        """``proc`` tells the default route. HCAs in ``exclude`` are never touched, ``expected`` ports always judged.

        ``slow_every`` in seconds; 0: every poll reads everything.
        """
        self._tree = tree
        self._roles = Roles(tree, proc)
        self._exclude = frozenset(exclude)
        self._expected = frozenset(expected)
        self._slow_every = slow_every
        self._slow_due = float("-inf")
        self._polls = 0
        self._hcas: dict[str, Hca] = {}
        self._missing: dict[Device, int] = {}
        """Ports that were here → polls in a row without them."""
        self._was_up: dict[Device, float | None] = {}
        """Ports of HCAs that are away and that were up → their highest rate."""
        self._slots: dict[str, tuple[str, frozenset[int]]] = {}
        """PCI address → name and ports that the HCA there was last seen with."""

    def poll(self, now: float) -> Batch:
        """See :class:`nodeguard.sources.polled.Poll`."""
        try:
            names = [name for name in self._tree.names(CLASS) if name not in self._exclude]
        except OSError as error:
            if error.errno not in AWAY:
                return Batch(source=SOURCE, facts=(SourceState(up=False, reason=f"{CLASS}: {error}"), Missed()))
            names = []
        slow = now >= self._slow_due
        if slow:
            self._slow_due = now + self._slow_every
        self._polls += 1
        facts: list[Fact] = list(self._meet(names, slow=slow))
        samples = self._read(now, slow=slow)
        facts += self._presence()
        samples.append(Sample("rdma_port_count", NODE, sum(len(hca.here) for hca in self._hcas.values())))
        return Batch(source=SOURCE, facts=tuple(facts), samples=tuple(samples))

    def _meet(self, names: list[str], *, slow: bool) -> list[Fact]:
        """Take in HCAs that came, leave out those that are gone for good; what was renamed."""
        for name in self._hcas.keys() - set(names):
            hca = self._hcas[name]
            hca.misses, hca.here = hca.misses + 1, []
            if hca.misses >= POLLS_UNTIL_GONE:
                self._was_up.update({port.device: port.best for port in hca.ports.values() if port.seen_active})
                del self._hcas[name]
        fresh: list[Hca] = []
        for name in names:
            known = self._hcas.get(name)
            if known is not None and (known.misses or slow) and slot_of(self._tree, name) != known.slot:
                known = None
            if known is None:
                known = self._hcas[name] = Hca(name, self._tree, self._roles, self._expected)
                fresh.append(known)
            known.misses = 0
        renamed = self._renamed(fresh) if fresh else []
        for hca in fresh:
            self._remind(hca)
        return renamed

    def _remind(self, hca: Hca) -> None:
        """A port that was up once is no port that never was, although its HCA was away meanwhile."""
        for port in hca.ports.values():
            if port.device in self._was_up:
                port.seen_active, port.best = True, self._was_up.pop(port.device)

    def _renamed(self, fresh: list[Hca]) -> list[Fact]:
        """The old names of these HCAs, and their own where those were another HCA's: their memory ends."""
        before = dict(self._slots)
        moved = {before[hca.slot][0]: hca.name for hca in fresh if hca.slot in before}
        stale: dict[Device, Device] = {}
        for hca in [hca for hca in fresh if hca.slot is not None]:
            for slot, (name, numbers) in before.items():
                if (slot == hca.slot) != (name == hca.name):
                    stale |= {rdma_port(name, number): rdma_port(moved.get(name, hca.name), number)
                              for number in numbers}
        self._keep_slots(fresh)
        for device in stale:
            self._missing.pop(device, None)
            self._was_up.pop(device, None)
        return [Renamed(old, new) for old, new in sorted(stale.items())]

    def _keep_slots(self, fresh: list[Hca]) -> None:
        names = {hca.name for hca in fresh}
        self._slots = {slot: known for slot, known in self._slots.items() if known[0] not in names}
        for hca in fresh:
            if hca.slot is not None and len(self._slots) < _SLOTS_LIMIT:
                self._slots[hca.slot] = (hca.name, frozenset(hca.ports))

    def _read(self, now: float, *, slow: bool) -> list[Sample]:
        here = [hca for hca in self._hcas.values() if not hca.misses]
        host = self._roles.host_netdevs() if slow or any(hca.new for hca in here) else frozenset[str]()
        samples: list[Sample] = []
        for hca in here:
            samples += hca.read(now, host, slow=slow or hca.new)
        return samples + compare([(hca.model, port) for hca in here for port in self._judged(hca)])

    @staticmethod
    def _judged(hca: Hca) -> Iterable[Port]:
        return (port for port in hca.here if hca.role_of(port) == "fabric")

    def _presence(self) -> list[Fact]:
        """What is missing is told poll by poll, and is no more present at the third."""
        here = {port.device for hca in self._hcas.values() for port in hca.here if hca.role_of(port) != "virtual"}
        for device in here:
            self._missing[device] = 0
        missing = [device for device in self._missing if device not in here]
        for device in missing:
            self._missing[device] += 1
        facts: list[Fact] = [Missed(frozenset(missing))] if missing else []
        for device in [device for device in missing if self._missing[device] >= POLLS_UNTIL_GONE]:
            del self._missing[device]
        if self._polls >= POLLS_UNTIL_GONE:
            # what an agent before this one saw is gone only after three polls of this one
            facts.append(Present("rdma_port", frozenset(self._missing)))
        return facts
