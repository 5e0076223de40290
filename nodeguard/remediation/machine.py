"""What the loop does with one node: a pure function of what it sees now and what it remembers.

``observed`` (no record) → ``quarantined`` → ``draining`` → ``repairing`` → ``verifying`` → given back; aside from the
way lie ``stuck`` (pods do not leave), ``needs-person`` and ``released`` (a person gave a faulty node back).

Nothing is written before a budget slot is taken, so a node that waits for the budget is only watched. From
``quarantined`` one can still go back; ``draining`` is written before the first pod is touched.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from nodeguard.model.fault import ACTIONS, strongest
from nodeguard.model.policy import Policy
from nodeguard.remediation.record import Record, incident_id
from nodeguard.remediation.report import Fault, Report
from nodeguard.remediation.views import NodeView, PodView
from nodeguard.remediation.words import Words, hands_off, working

_MOST_FAULTS = 64
"""Faults and rules that a record names; an annotation has a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything a decision about one node rests on. Times are Unix seconds."""

    now: float
    node: NodeView
    record: Record | None
    report: Report
    words: Words
    leaving: tuple[PodView, ...] = ()
    """Pods that the faults ask to leave and that are still there, ending ones among them."""
    refusal: str = ""
    """Why the budget or a brake would give no slot now; empty: it would. Only asked without a slot."""
    slot: bool = False
    """Whether the node has a budget slot."""
    waits: str = ""
    """Why a gang with pods here cannot be restarted yet; empty: nothing holds it back."""
    person: str = ""
    """Why a gang here needs a person; empty: it does not."""
    blocked_since: float | None = None
    """Since when a disruption budget has kept a pod here; None: none does."""
    clean_since: float | None = None
    """Since when the agent has had nothing to complain of; None: it has."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Take a slot, then write the record."""

    record: Record


@dataclass(frozen=True, slots=True)
class Write:
    """Write the record and the taint."""

    record: Record


@dataclass(frozen=True, slots=True)
class Clear:
    """Remove the loop's marks (or leave ``record``, which has no taint), then free the slot."""

    outcome: str
    """``released``, ``cancelled``…, for the incident."""
    record: Record | None = None
    word: bool = False
    """A person's ``release`` was followed: take it away."""


@dataclass(frozen=True, slots=True)
class MoveOut:
    """Make pods leave: restart their gangs or evict them, whichever their owners want."""

    pods: tuple[PodView, ...]


Command = Begin | Write | Clear | MoveOut


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now, and when to look again although nothing changed."""

    command: Command | None = None
    look_at: float | None = None
    """Unix seconds."""
    why: str = ""
    """For people: what is waited for."""
    held: bool = field(default=False)
    """A storm or a brake holds it."""


def step(seen: Seen, policy: Policy) -> Step:
    """Decide. At most one command, whose effect is to be seen before the next decision."""
    record = seen.record
    if seen.words.release:
        return _release_by_word(seen)
    ignored = record.faults if record is not None and record.state == "released" else ()
    faults = working(seen.report.faults, seen.words, ignored)
    if record is None:
        return _observed(seen, policy, faults)
    if record.state == "released":
        return _released(seen, policy, faults)
    if not seen.report.known:
        return Step(why="the agent's annotation is missing or of another generation", look_at=_later(seen, None))
    handlers = {"quarantined": _quarantined, "draining": _draining, "stuck": _draining, "needs-person": _draining,
                "repairing": _repairing, "verifying": _verifying}
    return handlers[record.state](seen, record, policy, faults)


def _observed(seen: Seen, policy: Policy, faults: tuple[Fault, ...]) -> Step:
    wanted = tuple(fault for fault in faults if fault.evicts)
    if not wanted:
        # a slot without a record or work is left over from a beginning that a crash cut short
        return Step(Clear("cancelled")) if seen.slot and seen.report.known else Step(look_at=seen.words.next_change)
    why = _not_now(seen, policy)
    if why:
        return Step(Clear("cancelled") if seen.slot else None, why=why, look_at=seen.words.next_change)
    if not seen.slot and seen.refusal:
        return Step(why=seen.refusal, held=True)
    return Step(Begin(_begun(seen, faults, wanted)))


def _begun(seen: Seen, faults: tuple[Fault, ...], wanted: tuple[Fault, ...]) -> Record:
    keys = tuple(sorted(fault.key for fault in wanted))[:_MOST_FAULTS]
    record = Record(
        state="quarantined", incident=incident_id(seen.node, keys), since=seen.now, faults=keys,
        rules=tuple(sorted({fault.rule for fault in wanted}))[:_MOST_FAULTS],
        action=strongest(ACTIONS, *(fault.action for fault in faults)), boot=seen.report.boot,
        stamps={"detected": min(fault.since for fault in wanted), "conditioned": seen.report.at,
                "quarantined": seen.now})
    # the first write already says that pods are on their way out, unless something must be waited for before
    return record if seen.waits or seen.person else record.to("draining", seen.now)


def _not_now(seen: Seen, policy: Policy) -> str:
    """Why nothing may be begun on the node."""
    if seen.words.hold_until is not None:
        return "a person holds the node"
    return hands_off(seen.node, policy)


def _quarantined(seen: Seen, record: Record, policy: Policy, faults: tuple[Fault, ...]) -> Step:
    if not any(fault.evicts for fault in faults):
        return Step(Clear("cancelled"))
    why = _not_now(seen, policy) or seen.person or seen.waits
    if why:
        return Step(why=why, look_at=seen.words.next_change)
    return Step(Write(record.to("draining", seen.now, faults=_joined(record, faults))))


def _draining(seen: Seen, record: Record, policy: Policy, faults: tuple[Fault, ...]) -> Step:
    if not seen.leaving:
        if any(fault.held and fault.key in record.faults for fault in seen.report.faults):
            return Step(why="the brake holds the rule")
        return Step(Write(record.to("repairing", seen.now)))
    why = _not_now(seen, policy)
    if why:
        return Step(why=why, look_at=seen.words.next_change)
    overdue = record.stamps.get("draining", record.since) + policy.drain.deadline
    written = _rewritten(seen, record, policy, faults, overdue)
    if written is not None:
        return Step(Write(written))
    staying = tuple(pod for pod in seen.leaving if not pod.deleting)
    look_at = min(overdue, _blocked_until(seen, policy)) if record.state == "draining" else None
    return Step(MoveOut(staying) if staying else None, look_at=_later(seen, look_at), why=seen.waits)


def _blocked_until(seen: Seen, policy: Policy) -> float:
    """When a disruption budget will have refused for too long."""
    return float("inf") if seen.blocked_since is None else seen.blocked_since + policy.drain.pdb_deadline


def _rewritten(seen: Seen, record: Record, policy: Policy, faults: tuple[Fault, ...],
               overdue: float) -> Record | None:
    """The record with what has changed about the work while pods leave; None: nothing has."""
    joined = _joined(record, faults)
    if joined != record.faults:
        return _also(record, joined, faults)
    if record.state in ("draining", "stuck") and seen.person:
        return record.to("needs-person", seen.now, seen.person)
    if record.state == "draining" and seen.now >= _blocked_until(seen, policy):
        return record.to("stuck", seen.now, f"drain blocked by PDB: {seen.waits or 'it allows no disruption'}")
    if record.state == "draining" and seen.now >= overdue:
        names = ", ".join(pod.key for pod in seen.leaving[:3])
        return record.to("stuck", seen.now, f"{len(seen.leaving)} pods do not leave: {names}")
    return None


def _repairing(seen: Seen, record: Record, policy: Policy, faults: tuple[Fault, ...]) -> Step:
    if any(pod for pod in seen.leaving if not pod.deleting):
        return Step(Write(record.to("draining", seen.now, faults=_joined(record, faults))))
    if seen.clean_since is None:
        return Step(why=f"waits for its repair: {record.action}", look_at=seen.words.next_change)
    del policy
    return Step(Write(record.to("verifying", seen.now)))


def _verifying(seen: Seen, record: Record, policy: Policy, faults: tuple[Fault, ...]) -> Step:
    del faults
    if seen.clean_since is None:
        return Step(Write(record.to("repairing", seen.now, "at fault again")))
    due = max(seen.clean_since, record.since) + policy.release.healthy_for
    if seen.words.hold_until is not None:
        return Step(why="a person holds the node", look_at=seen.words.next_change)
    if seen.now < due:
        return Step(look_at=_later(seen, due), why="proves itself healthy")
    return Step(Clear("released"))


def _release_by_word(seen: Seen) -> Step:
    """A person gives the node back, whatever the agent says: open faults are passed over until they close."""
    passed = tuple(sorted(fault.key for fault in seen.report.faults if fault.acts))
    if not passed:
        return Step(Clear("released", word=True))
    begun = seen.record.incident if seen.record is not None else incident_id(seen.node, passed)
    return Step(Clear("released", word=True, record=Record(
        state="released", incident=begun, since=seen.now, faults=passed, reason="a person released the node")))


def _released(seen: Seen, policy: Policy, faults: tuple[Fault, ...]) -> Step:
    """A person gave the node back. New faults are new work; the old mark goes when its faults are gone."""
    if faults:
        return _observed(seen, policy, faults)
    record = seen.record
    open_keys = {fault.key for fault in seen.report.faults}
    if record is not None and seen.report.known and not open_keys & set(record.faults):
        return Step(Clear(""))
    return Step()


def _joined(record: Record, faults: tuple[Fault, ...]) -> tuple[str, ...]:
    """The record's faults and those that came since; a fault that comes and goes must not grow it for ever."""
    new = sorted({fault.key for fault in faults if fault.evicts} - {*record.faults})
    room = max(0, _MOST_FAULTS - len(record.faults))
    return tuple(sorted((*record.faults, *new[:room])))


def _also(record: Record, keys: tuple[str, ...], faults: tuple[Fault, ...]) -> Record:
    rules = tuple(sorted({*record.rules, *(fault.rule for fault in faults if fault.evicts)}))[:_MOST_FAULTS]
    action = strongest(ACTIONS, record.action, *(fault.action for fault in faults))
    return Record(state=record.state, incident=record.incident, since=record.since, faults=keys, rules=rules,
                  action=action, boot=record.boot, stamps=record.stamps, restarts=record.restarts,
                  reason=record.reason)


def _later(seen: Seen, at: float | None) -> float | None:
    return min(_known(at, seen.words.next_change), default=None)


def _known(*times: float | None) -> Iterator[float]:
    return (time for time in times if time is not None)
