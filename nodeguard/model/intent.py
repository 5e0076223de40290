"""What the agent wants its Node to say, computed from the engine's state and written by the sinks."""

from dataclasses import dataclass
from typing import Literal

from nodeguard.model.fault import Fault

Status = Literal["True", "False", "Unknown"]

TAINT_KEY = "nodeguard.io/unhealthy"
TAINT_EFFECT = "NoSchedule"
FAULTS_ANNOTATION = "nodeguard.io/faults"
CONDITION_PATTERN = r"^(Gpu|Nvlink|Pcie|Rdma|Host|Nodeguard)[A-Za-z0-9]{1,50}$"
"""Types that nodeguard may own; the admission policy uses the same pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One node condition in problem polarity: ``True`` = a fault is open."""

    type: str
    status: Status
    reason: str
    """CamelCase word, stable while the strongest rule is the same."""
    message: str
    since: float | None
    """Engine time of the oldest open fault that feeds it; None when nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """Everything nodeguard wants on its Node now. Equal intents need no write."""

    boot_id: str
    rules_hash: str
    conditions: tuple[Condition, ...]
    """Sorted by type. A type that nodeguard wrote before and is missing here is to be removed."""
    faults: tuple[Fault, ...]
    """Open faults with an effect of ``condition`` or more after observe mode, strongest first."""
    taint: str | None
    """The taint's value (a condition type), or None for no taint."""
    ready: bool
    """False until the sources had their first full poll: nothing is written before (or 10 s)."""

    @property
    def effect(self) -> str:
        """The strongest effect among the faults."""
        return max((fault.effect for fault in self.faults), key=_EFFECT_ORDER.__getitem__, default="none")


_EFFECT_ORDER = {"none": 0, "event": 1, "condition": 2, "noschedule": 3, "evict": 4}
