"""Incidents: what the loop tells, made into one timeline and one decision record for each piece of work."""

import dataclasses
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from nodeguard.kube.api import Api
from nodeguard.kube.pace import Backoff, repeat
from nodeguard.model.clock import Clock
from nodeguard.model.errors import ApiError
from nodeguard.remediation import incidents_entry as entries
from nodeguard.remediation.happenings import Happening
from nodeguard.remediation.incidents_entry import MOST_PODS, MOST_WORDS, Incident, first
from nodeguard.remediation.incidents_ring import Ring
from nodeguard.remediation.record import Record

_APART = 2.0
_IDLE = 60.0

_STAMPS = ("detected", "conditioned", "quarantined", "stuck", "needs-person")
"""Stamps of a record that are phases."""
_PHASES = ("evicted", "suspended", "gone", "resumed", "bound", "running")
"""Happenings that are phases."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a happening did to its incident."""

    incident: Incident
    reached: Mapping[str, float] = field(default_factory=dict)
    """Phase newly reached → seconds since the fault was detected."""


class Incidents:
    """Keeps the ring.

    Written at most every 2 s, so that a crash loses no more than that; read before the first write, and again when
    another leader has written. ``report`` is told of each new kind of failure, and of its end.
    """

    def __init__(self, api: Api, clock: Clock, namespace: str, *, ring: Ring | None = None,
                 report: Callable[[str, str], None] = lambda _what, _text: None) -> None:
        self._ring = ring or Ring(api, namespace)
        self._clock, self._report = clock, report
        self._backoff = Backoff(0.5, 30.0)
        self._not_before = clock.boot()
        self._wake = threading.Event()
        self._failure: ApiError | None = None

    @property
    def unwritten(self) -> int:
        """Incidents that differ from what was written."""
        return self._ring.unwritten

    def take(self, told: Happening) -> Taken | None:
        """Note what happened; None when it belongs to no incident."""
        if told.record is None or not told.incident:
            return None
        with self._ring.lock:
            before = next((one for one in self._ring if one.id == told.incident), None)
            start = _start(before, told)
            if start is None:
                return None
            after = _after(start, told)
            self._supersede(after)
            self._ring.put(after)
        self._wake.set()
        known = _known(before, after, told)
        return Taken(after, {phase: after.since_detected(phase) for phase in after.stamps if phase not in known})

    def _supersede(self, incident: Incident) -> None:
        """One machine has one piece of work at a time: an older one whose end nobody saw has ended too."""
        for one in self._ring:
            if one.machine == incident.machine and one.id != incident.id and not one.outcome \
                    and one.begun < incident.begun:
                self._ring.put(dataclasses.replace(one, outcome="superseded", changed=incident.changed))

    def run(self, stop: threading.Event) -> None:
        """Write until ``stop`` is set; :meth:`close` writes the rest."""
        repeat(self.turn, self._wake, self._clock, stop)

    def turn(self) -> float:
        """Write what has changed, if that is due; seconds until it may be due again. Never raises."""
        now = self._clock.boot()
        if not self._ring.unwritten:
            return _IDLE
        if now < self._not_before:
            return self._not_before - now
        self._not_before = now + self._write()
        return self._not_before - now

    def close(self) -> None:
        """Write what is not written yet, once."""
        if self._ring.unwritten:
            self._write()

    def _write(self) -> float:
        try:
            self._ring.write()
        except ApiError as error:
            if type(error) is not type(self._failure):
                self._report("failing", f"incidents cannot be written: {error}")
            self._failure = error
            return max(_APART, self._backoff.next(error.retry_after))
        if self._failure is not None:
            self._failure = None
            self._report("recovered", "incidents are written again")
        self._backoff.reset()
        return _APART


def _start(before: Incident | None, told: Happening) -> Incident | None:
    """The incident as it was, or a new one; the same work begun again is begun anew. None: of an unknown node."""
    if before is not None:
        return dataclasses.replace(before, outcome="", stamps={}, begun=told.at) if told.what == "begun" else before
    node = told.node
    if node is None:
        return None
    return Incident(id=told.incident, machine=entries.machine_of(node), begun=told.at, changed=told.at, node=node.name,
                    uid=node.uid, provider_id=node.provider_id)


def _known(before: Incident | None, after: Incident, told: Happening) -> Collection[str]:
    """Phases that were told before, by this replica or, where it meets the incident in its middle, by another."""
    if told.what == "begun":
        return ()
    if before is not None:
        return before.stamps
    return [phase for phase, at in after.stamps.items() if at < told.at]


def _after(incident: Incident, told: Happening) -> Incident:
    """The incident with what happened."""
    changes: dict[str, object] = {"changed": max(told.at, incident.changed), "policy": incident.policy or told.policy}
    if told.record is not None and told.node is not None:
        changes |= _of_record(incident, told.record)
    if told.report is not None and told.record is not None:
        acting = sorted(told.report.faults, key=lambda fault: not fault.evicts)[:MOST_WORDS]
        changes |= {"faults": tuple(map(entries.evidence_of, acting)), "rule_set": told.report.rules}
    if told.owner is not None and told.owner.path:
        owners = {**incident.owners, told.owner.uid: told.owner.title}
        changes["owners"] = dict(list(owners.items())[:MOST_WORDS])
    if told.what == "evicted":
        changes |= {"pods": first((*incident.pods, *(pod.key for pod in told.pods)), MOST_PODS),
                    "evicted": incident.evicted + len(told.pods)}
    if told.what in ("waits", "held", "failed") and told.text:
        changes["waited"] = (*incident.waited, (told.at, entries.short(told.text)))[-MOST_WORDS:]
    if told.what == "closed":
        changes |= {"outcome": told.text, "state": ""}
    return dataclasses.replace(incident, stamps=_stamps(incident, told), **changes)  # type: ignore[arg-type] # by name


def _of_record(incident: Incident, record: Record) -> dict[str, object]:
    restarts = {**incident.restarts, **{one.id: one for one in record.restarts}}
    return {"state": record.state, "reason": entries.short(record.reason), "action": record.action,
            "rules": record.rules[:MOST_WORDS], "boot": record.boot, "restarts": restarts}


def _stamps(incident: Incident, told: Happening) -> dict[str, float]:
    """Each phase counts from when it was first reached; a repair that did not last is taken back."""
    stamps, record = dict(incident.stamps), told.record
    if record is not None and told.node is not None:
        stamps = {**{name: at for name, at in record.stamps.items() if name in _STAMPS}, **stamps}
        if record.state == "repairing":
            stamps.pop("repaired", None)
        elif record.state == "verifying":
            stamps.setdefault("repaired", record.since)
    if told.what in _PHASES:
        stamps.setdefault(told.what, told.at)
    if told.what == "suspended" and told.count:
        stamps.setdefault("job-backoff", told.at)
    if told.what == "closed" and told.text == "released":
        if record is not None and record.state == "verifying":
            stamps.setdefault("verified", told.at)
        stamps.setdefault("released", told.at)
    return {phase: round(at, 3) for phase, at in stamps.items()}
