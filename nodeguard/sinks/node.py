"""Writes the agent's intent on its own Node: conditions, the annotation of faults, the taint."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from nodeguard.kube.api import MERGE_PATCH, STRATEGIC_PATCH, Api, Object, node_path
from nodeguard.kube.brake import Brake
from nodeguard.kube.pace import Backoff, TokenBucket, repeat, spread_of
from nodeguard.kube.patches import has_own, taint_patch
from nodeguard.model.clock import Clock
from nodeguard.model.errors import ApiConflict, ApiError, ApiNotFound, ApiRefused
from nodeguard.model.intent import Intent
from nodeguard.sinks.brake import Wish, braked, wish_of
from nodeguard.sinks.node_state import Memory, NodeView, Plan, plan, taints_of, view_of

Report = Callable[[str, str], None]
"""Told (what, a sentence for people); ``what`` is one of the words in :class:`NodeWriter`."""

_CONFLICT_TRIES = 6
_TIMEOUT = 5.0
"""Seconds: a connection that a firewall forgot is silent for ever, and the write is safe to repeat."""
_BRAKE_AGAIN = 5.0
_IDLE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often to write; :class:`NodeWriter` says why."""

    burst: int = 8
    """Writes at once; one is a PATCH of the status and one of the taints."""
    per_second: float = 1.0
    """Writes on average after the burst."""
    wording: float = 60.0
    """Seconds between writes of nothing but counts and wording."""
    heartbeat: float = 1800.0
    """Seconds between writes of nothing new."""


@dataclass(frozen=True, slots=True)
class WriterStatus:
    """How the writer fares, for metrics and readiness."""

    writes_total: int
    """PATCH requests that the API server answered with success."""
    conflicts_total: int
    """Taint writes refused because somebody else changed the Node meanwhile."""
    errors_total: int
    """Failed requests, conflicts not counted."""
    last_error: str | None
    """None while all goes well."""
    pending_since: float | None
    """Engine time since when the Node should say something else than it does; None when it says it."""


class NodeWriter:
    """Brings the Node to the newest intent.

    Its guarantees, and the periods that follow from them:

    1. **Soon.** A changed intent is written at once: one PATCH for conditions and annotation together, whose answer
       carries the resourceVersion with which the taint follows in the next. No read, no poll.
    2. **Never a flood.** Eight writes at once (a node full of GPUs failing one by one) and then one a second; a
       growing count or another wording alone once a minute; nothing while nothing differs, but for a heartbeat each
       half hour, spread by the node's name over ±10 %. After failures 0.2 s to 15 s, or what the server asks for.
    3. **Nobody else's entry is touched.** Conditions merge by type and only own types are sent or removed. Taints are
       one list, so they carry the resourceVersion they were read at: on a conflict the Node is read again and the
       list made anew, six times at once, then after a back-off.
    4. **It outlives an outage.** The last intent is written when the server answers again, with the times at which
       things happened, not those of the write. ``lastTransitionTime`` moves with the status alone.
    5. **The brake is asked first.** Before the taint is added, and never before it is removed, the brake is read; while
       it holds everything that asks for the taint, it is read again every five seconds.
    6. **No blink.** Nothing is written before the intent is ready; what stands on the Node until then stays.

    Reports ``node_missing``, ``node_replaced`` (another UID: the caller's memory is about another machine),
    ``foreign_taint`` (somebody else holds the taint's key), ``failing`` and ``recovered``.
    """

    def __init__(  # noqa: PLR0913 - three are needed, three have defaults
        self, api: Api, node_name: str, clock: Clock, *, pace: Pace | None = None,
        report: Report = lambda _what, _text: None, brake: Callable[[], Brake] = Brake,
    ) -> None:
        """``brake`` is asked before the taint is added; it must answer soon, and with no brake when it cannot tell."""
        pace = pace or Pace()
        self._api = api
        self._path = node_path(node_name)
        self._clock = clock
        self._report = report
        self._heartbeat = pace.heartbeat * (1.0 + 0.1 * spread_of(node_name))
        self._minor_period = pace.wording
        self._bucket = TokenBucket(pace.burst, pace.per_second)
        self._backoff = Backoff(0.2, 15.0, 1.0 + 0.25 * spread_of(node_name))
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._intent: Intent | None = None
        self._view: NodeView | None = None
        self._uid = ""
        self._memory = Memory()
        self._pending_since: float | None = None
        self._written_at = clock.boot()
        self._not_before = clock.boot()
        self._foreign: Object | None = None
        self._read_brake = brake
        self._brake, self._brake_at = Brake(), float("-inf")
        self._braked_wish: Wish = ()
        self._failure: ApiError | None = None
        self._writes = self._conflicts = self._errors = 0

    def publish(self, intent: Intent) -> None:
        """Take a new intent; the newest wins. Returns at once, from any thread."""
        with self._lock:
            if intent == self._intent:
                return
            self._intent = intent
            if intent.ready:
                self._memory.note(intent, self._clock.boot(), self._clock.wall())
                if self._pending_since is None:
                    self._pending_since = self._clock.boot()
        self._wake.set()

    def observe(self, node: Object) -> None:
        """Take the Node as a watcher saw it: what somebody else changed of ours is written again. Any thread."""
        self._learn(node)
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Write until ``stop`` is set; returns within half a second after, or when the request under way ends."""
        repeat(self.turn, self._wake, self._clock, stop)

    def turn(self) -> float:
        """Do what is due now; seconds until something else may be. What :meth:`run` repeats; never raises."""
        now = self._clock.boot()
        if now < self._not_before:
            return self._not_before - now
        try:
            wait = self._act(now)
        except ApiError as error:
            wait = self._backoff.next(error.retry_after)
            self._not_before = now + wait
            self._note_failure(error)
        return wait

    @property
    def status(self) -> WriterStatus:
        """How it fares now; from any thread."""
        failure = self._failure
        return WriterStatus(
            self._writes, self._conflicts, self._errors, str(failure) if failure else None, self._pending_since)

    def _act(self, now: float) -> float:
        if self._view is None:
            self._read()
        holding = self._ask_brake(now)
        intent, difference = self._difference(now)
        if intent is None or difference is None:
            self._note_success()
            return _IDLE
        wait = self._wait(difference, now)
        if wait == 0.0:
            self._bucket.take(now)
            self._write(intent, difference)
        if wait == 0.0 or difference.nothing:
            self._note_success()
        return min(wait, _BRAKE_AGAIN) if holding else wait

    def _ask_brake(self, now: float) -> bool:
        """Read the brake if a taint is about to be added; whether it holds something back now."""
        with self._lock:
            intent, view = self._intent, self._view
        if intent is None or view is None or not intent.ready or intent.taint is None:
            self._brake, self._braked_wish = Brake(), ()
            return False
        wish, holding = wish_of(intent), braked(intent, self._brake) != intent
        stale = wish != self._braked_wish or now >= self._brake_at + _BRAKE_AGAIN
        if stale and (holding or not has_own(view.taints)):
            self._brake, self._brake_at, self._braked_wish = self._read_brake(), now, wish
        return braked(intent, self._brake) != intent

    def _difference(self, now: float) -> tuple[Intent | None, Plan | None]:
        with self._lock:
            intent, view = self._intent, self._view
            if intent is None or view is None or not intent.ready:
                return None, None
            intent = braked(intent, self._brake)
            found = plan(view, intent, self._memory, self._clock.wall(),
                         beat=now >= self._written_at + self._heartbeat)
            if not found.urgent:
                self._pending_since = None
        self._note_foreign(found.taints.foreign)
        return intent, found

    def _wait(self, difference: Plan, now: float) -> float:
        """Seconds until this difference may be written."""
        if difference.urgent:
            return self._bucket.wait(now)
        due = self._written_at + (self._heartbeat if difference.status is None else self._minor_period)
        return max(due - now, self._bucket.wait(now), 0.0)

    def _write(self, intent: Intent, difference: Plan) -> None:
        refused = None
        if difference.status is not None:
            try:
                self._patch(self._path + "/status", difference.status, STRATEGIC_PATCH)
                self._written_at = self._clock.boot()
                self._memory.wrote |= {condition.type for condition in intent.conditions}
            except ApiRefused as error:
                refused = error  # the taint protects the node even where a policy refuses the words
        self._write_taints(intent)
        if refused is not None:
            raise refused

    def _write_taints(self, intent: Intent) -> None:
        conflict = None
        for _ in range(_CONFLICT_TRIES):
            view = self._view or self._read()
            taints = taints_of(view, intent)
            if taints.wanted is None:
                return
            try:
                self._patch(self._path, taint_patch(view.version, taints.wanted), MERGE_PATCH)
            except ApiConflict as error:
                self._conflicts += 1
                conflict = error
                self._read()
            else:
                return
        if conflict is not None:
            raise conflict

    def _patch(self, path: str, body: Object, content_type: str) -> None:
        answer = self._api.patch(path, body, content_type, timeout=_TIMEOUT)
        self._writes += 1
        self._learn(answer)

    def _read(self) -> NodeView:
        return self._learn(self._api.get(self._path, timeout=_TIMEOUT))

    def _learn(self, node: Object) -> NodeView:
        """Take the newest state of the Node; a watcher may still be telling older ones."""
        view = view_of(node)
        with self._lock:
            known, replaced = self._view, self._uid not in ("", view.uid)
            if known is not None and known.uid == view.uid and view.is_older_than(known):
                return known
            self._view, self._uid = view, view.uid
            if replaced:
                # what was wanted is about another machine: the caller says anew what it wants here
                self._intent = None
            self._memory.adopt(view)
            if known is None:
                self._written_at = self._clock.boot() - self._heartbeat_age(view)
        if replaced:
            self._report("node_replaced", f"the Node is another object now: UID {view.uid}")
        return view

    def _heartbeat_age(self, view: NodeView) -> float:
        beat = view.last_heartbeat()
        return 0.0 if beat is None else min(max(self._clock.wall() - beat, 0.0), self._heartbeat)

    def _note_foreign(self, taint: Object | None) -> None:
        if taint != self._foreign and taint is not None:
            self._report(
                "foreign_taint",
                f"the taint {taint.get('key')}={taint.get('value', '')}:{taint.get('effect')} was not written by "
                "nodeguard and is left as it is; remove it by hand when it is no longer wanted")
        self._foreign = taint

    def _note_failure(self, error: ApiError) -> None:
        if type(error) is not type(self._failure):
            self._report("node_missing" if isinstance(error, ApiNotFound) else "failing", str(error))
        if isinstance(error, ApiNotFound):
            self._view = None
        self._errors += not isinstance(error, ApiConflict)
        self._failure = error

    def _note_success(self) -> None:
        self._backoff.reset()
        if self._failure is not None:
            self._failure = None
            self._report("recovered", "the Node says again what it should")
