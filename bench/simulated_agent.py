"""The agent above a simulated driver of 8 GPUs, in one process; prints what the driver was asked when it is told to.

``python -m bench.simulated_agent UUIDS SLOTS [hang] agent …``: UUIDS and PCI addresses with commas, then the agent's
words. With ``hang`` every call to the driver hangs from the start; SIGUSR1 makes every call hang from then on, and
SIGUSR2 lets all of them go on. After every SIGRTMIN it prints one line: the :class:`Tally` so far, as JSON.
"""

import json
import signal
import sys
from collections import Counter
from typing import NamedTuple

from nodeguard.__main__ import main
from nodeguard.sim.driver import SimulatedDriver

_TIERS = {"Nvml.fast": "fast", "Nvml.slow": "slow", "Nvml.watch": "event", "EventWatch.wait": "event",
          "EventWatch.close": "event", "Nvml.users": "pods"}
"""By the door of the façade through which a call came. Every other one (open, count, identify…) asks who is there."""
_IDENTIFY = "identify"


class Tally(NamedTuple):
    """What the simulated driver was asked since the start."""

    calls: dict[str, dict[str, int]]
    """Tier → C function → calls."""
    cpu_seconds: float
    """CPU time inside the simulated library."""


class Meter:
    """Counts the driver's calls by tier, at the C interface."""

    def __init__(self, driver: SimulatedDriver) -> None:
        self._driver = driver
        self._calls: Counter[tuple[str, str]] = Counter()
        driver.on_call = self._count

    def _count(self, function: str) -> None:
        self._calls[_tier(), function] += 1

    def tell(self) -> None:
        """Print the tally."""
        calls: dict[str, dict[str, int]] = {}
        for (tier, function), count in list(self._calls.items()):
            calls.setdefault(tier, {})[function] = count
        print(json.dumps(Tally(calls, self._driver.cpu_seconds)), flush=True)


def _tier() -> str:
    frame = sys._getframe()  # noqa: SLF001 # only the caller's own frames tell for which tier a shared function is called
    while frame.f_back is not None:
        frame = frame.f_back
        tier = _TIERS.get(frame.f_code.co_qualname)
        if tier is not None:
            return tier
    return _IDENTIFY


if __name__ == "__main__":
    uuids, slots = (words.split(",") for words in sys.argv[1:3])
    words = sys.argv[3:]
    with SimulatedDriver.at(slots, uuids) as driver:
        meter = Meter(driver)
        signal.signal(signal.SIGUSR1, lambda *_: driver.hang())
        signal.signal(signal.SIGUSR2, lambda *_: driver.release_all())
        signal.signal(signal.SIGRTMIN, lambda *_: meter.tell())
        if words[0] == "hang":
            driver.hang()
            words = words[1:]
        code = main(words)
    sys.exit(code)
