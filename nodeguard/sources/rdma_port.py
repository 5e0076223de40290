"""One RDMA port: what its files tell, fast ones every second and slow ones now and then."""

from nodeguard.model.device import rdma_port
from nodeguard.model.sample import Labels, Sample
from nodeguard.model.signals import SIGNALS
from nodeguard.model.signals.rdma import COUNTERS, HW_COUNTERS, NEVER_A_FAULT
from nodeguard.sources.rdma_files import AWAY, Files, Refused, count, rate_gbps, state_word
from nodeguard.sources.rdma_role import CLASS
from nodeguard.sources.tree import names_of, text_of

UP = ("ACTIVE", "ACTIVE_DEFER")
_FAST_COUNTER = "link_downed"
_STATES = frozenset(SIGNALS["rdma_port_state"].states)
_PHYS_STATES = frozenset(SIGNALS["rdma_port_phys_state"].states)
_TOPS = {file: (1 << bits) - 1 for file, (bits, _) in {**COUNTERS, **HW_COUNTERS}.items() if bits is not None}


class Port:
    """Reads a port. The newest values stay readable for those who compare ports."""

    def __init__(self, hca: str, number: int, files: Files) -> None:
        self.device = rdma_port(hca, number)
        self.number = number
        self.path = f"{CLASS}/{hca}/ports/{number}"
        self.state: str | None = None
        self.rate: float | None = None
        self.best: float | None = None
        """Highest rate seen while ACTIVE."""
        self.seen_active = False
        self.link_layer = "unknown"
        self._files = files
        self._refusing: set[str] = set()
        """Directories of counters that refuse; the port itself works."""
        self._saturated: set[str] = set()
        """Counters that were at their maximum once."""
        self._counts_downs = False

    def read(self, now: float, *, slow: bool) -> list[Sample]:
        """One poll. OSError when the port is not there, :class:`Refused` when the firmware keeps it to itself."""
        phys, rate = self._read_state(now)
        samples = [Sample("rdma_port_state", self.device, self.state),
                   Sample("rdma_port_phys_state", self.device, phys),
                   Sample("rdma_port_rate_gbps", self.device, rate)]
        if slow:
            self.link_layer = text_of(self._files.tree, f"{self.path}/link_layer") or self.link_layer
            for directory, known in (("counters", COUNTERS), ("hw_counters", HW_COUNTERS)):
                for file in sorted(known.keys() & set(names_of(self._files.tree, f"{self.path}/{directory}"))):
                    self._counter(directory, file, now, samples)
        elif self._counts_downs:
            self._counter("counters", _FAST_COUNTER, now, samples)
        layer: Labels = (("link_layer", self.link_layer),)
        samples.append(Sample("rdma_port_present", self.device, 1, layer))
        samples.append(Sample("rdma_port_seen_active", self.device, int(self.seen_active)))
        return samples

    def _read_state(self, now: float) -> tuple[str | None, float | None]:
        self.state = self._word("state", _STATES, now)
        phys = self._word("phys_state", _PHYS_STATES, now)
        rate = rate_gbps(self._vital("rate", now))
        if self.state in UP and (phys != "LinkUp" or rate != self.rate):
            # the link may have gone down between the reads
            self.state = self._word("state", _STATES, now)
        self.rate = rate
        if self.state in UP:
            self.seen_active = True
            self.best = max((one for one in (self.best, rate) if one is not None), default=None)
        return phys, rate

    def _word(self, name: str, words: frozenset[str], now: float) -> str | None:
        return state_word(self._vital(name, now), words)

    def _vital(self, name: str, now: float) -> str | None:
        try:
            return self._files.read(f"{self.path}/{name}", now, vital=True)
        except OSError:
            if not names_of(self._files.tree, self.path):
                raise
            return None  # the port is there and has no such file

    def _counter(self, directory: str, file: str, now: float, samples: list[Sample]) -> None:
        if directory in self._refusing:
            return
        try:
            value = count(self._files.read(f"{self.path}/{directory}/{file}", now))
        except OSError:
            value = None
        except Refused:
            if directory == "counters" and self.state not in UP:
                raise
            self._refusing.add(directory)
            return
        samples.append(Sample(f"rdma_{file}_total", self.device, value))
        self._counts_downs = self._counts_downs or file == _FAST_COUNTER
        if value is not None and file not in NEVER_A_FAULT:
            self._saturation(file, value, samples)

    def _saturation(self, file: str, value: int, samples: list[Sample]) -> None:
        full = value >= _TOPS.get(file, value + 1)
        if full or file in self._saturated:
            self._saturated.add(file)
            samples.append(Sample("rdma_counter_saturated", self.device, int(full), (("counter", file),)))
        if file == _FAST_COUNTER:
            samples.append(Sample("rdma_link_downed_saturated", self.device, int(full)))


def is_away(error: OSError) -> bool:
    """Whether the error says that the device is not there."""
    return error.errno in AWAY
