"""A rule as the engine takes it: loaded, checked and frozen by ``config``, compiled by ``engine``."""

from dataclasses import dataclass
from typing import Literal

from nodeguard.model.sample import Attribute, Value

Operator = Literal["above", "below", "is", "is_not"]


@dataclass(frozen=True, slots=True)
class Reference:
    """Another signal of the same device, times a factor, plus a constant."""

    signal: str
    plus: float = 0.0
    times: float = 1.0


@dataclass(frozen=True, slots=True)
class Level:
    """A comparison of one value.

    ``is``/``is_not`` hold a tuple of values, ``above``/``below`` a number or a Reference.
    """

    operator: Operator
    operand: float | Reference | tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Increase:
    """The counter grew by ``at_least`` within ``within`` seconds."""

    at_least: float
    within: float


@dataclass(frozen=True, slots=True)
class Rate:
    """The counter grew by more than ``above`` a second, averaged over ``over`` seconds."""

    above: float
    over: float


@dataclass(frozen=True, slots=True)
class Count:
    """``at_least`` events (or distinct values of an attribute) within ``within`` seconds, apart per ``same``."""

    at_least: int
    within: float
    distinct: str | None = None
    same: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Left:
    """Was seen in one of these states, now is in none of them."""

    states: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Absent:
    """An expected device, or this sample of a present one, is gone while its source is up."""


@dataclass(frozen=True, slots=True)
class Bare:
    """Every occurrence of an event."""


Test = Level | Increase | Rate | Count | Left | Absent | Bare


@dataclass(frozen=True, slots=True)
class Hold:
    """``for``: how long a test must be true on every known sample. Exactly one of the two is given."""

    seconds: float = 0.0
    samples: int = 1


@dataclass(frozen=True, slots=True)
class Companion:
    """A comparison of another signal's newest known sample on the same device."""

    signal: str
    level: Level


@dataclass(frozen=True, slots=True)
class Slow:
    """A counter grew by less than ``below`` a second, averaged over the last ``over`` seconds."""

    signal: str
    below: float
    over: float
    kind: str | None = None
    """Judged on every device of this kind; None: on the rule's own device."""


@dataclass(frozen=True, slots=True)
class Clear:
    """What ends a fault. All None: the test's own default."""

    on: str | None = None
    """A word of :data:`nodeguard.model.fault.EVIDENCE`."""
    after: float | None = None
    """Seconds."""
    level: Level | None = None
    """Hysteresis: the rule's own signal must compare so, for ``after``."""
    while_: Companion | None = None
    """Time counts towards ``after`` only while this holds."""


@dataclass(frozen=True, slots=True)
class Across:
    """Judge many devices together, on ``node``. ``at_least`` None: all of the kind."""

    kind: str
    at_least: int | None


@dataclass(frozen=True, slots=True)
class Matcher:
    """One attribute or label must be one of ``any_of``, or (``negated``) none of them, or match ``regex`` whole."""

    name: str
    any_of: tuple[Attribute, ...] = ()
    regex: str | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the set in force."""

    name: str
    signal: str
    kind: str | None = None
    """Only devices of this kind are judged; None: whichever carry the signal."""
    match: tuple[Matcher, ...] = ()
    test: Test = Bare()
    hold: Hold = Hold()
    require: tuple[Companion | Slow, ...] = ()
    across: Across | None = None
    mutes: tuple[str, ...] = ()
    severity: str
    action: str
    effect: str
    scope: str
    condition: str | None = None
    clear: Clear = Clear()
    message: str
    """Text for people; ``{device}`` and the names of attributes, labels, ``value`` are filled in."""
    runbook: str | None = None
    observe: bool = False
    judging_hash: str
    """Over the fields that decide when it opens and closes: the same hash keeps timers over a reload."""
    content_hash: str
    """Over every field: the brake knows a rule by it."""
    origin: str = ""
    """``file:line`` it was read from."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Every rule in force, by name, in the order of the files."""

    rules: tuple[Rule, ...]
    hash: str
