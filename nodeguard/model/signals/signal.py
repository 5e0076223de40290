"""What a row of the catalogue says of a signal."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "state", "event"]


@dataclass(frozen=True, slots=True)
class Signal:
    """One row of the catalogue."""

    name: str
    kind: Kind
    devices: tuple[str, ...]
    """Kinds of device that carry it."""
    sources: tuple[str, ...]
    """Sources that can read it; an event rule is judged once one of them is up and caught up."""
    help: str
    attributes: tuple[str, ...] = ()
    """Names that ``match``, ``distinct`` and ``same`` may use."""
    states: tuple[str, ...] = ()
    """Words of a state signal; empty: numbers."""
    bits: int | None = None
    """Width of a hardware counter that stops at its maximum: there its value is unknown."""
    lifetime: bool = False
    """The device itself keeps the counter over reboots, so its baseline and windows outlive them too."""
    steady: bool = False
    """Told only when it changes and true until then: time alone lets ``for`` and ``after`` pass."""

    @property
    def saturates_at(self) -> int | None:
        """The value at which the counter stops counting, or None."""
        return None if self.bits is None else (1 << self.bits) - 1
