"""The loop: takes what the watches tell, decides for one node after the other, and has the decisions carried out.

One thread decides. Everything that waits for the API server runs elsewhere and comes back as a call for this thread;
a node whose command is under way is decided again when that has ended.
"""

import heapq
import queue
import threading
from collections import deque
from collections.abc import Callable

from nodeguard.kube.api import Api
from nodeguard.model.clock import Clock
from nodeguard.model.policy import Policy
from nodeguard.remediation.brakes import Brakes
from nodeguard.remediation.calls import Call
from nodeguard.remediation.cases import Cases
from nodeguard.remediation.hands import Hands, Ledger
from nodeguard.remediation.happenings import Tell
from nodeguard.remediation.mover import Mover
from nodeguard.remediation.owners import Owners
from nodeguard.remediation.recall import recall
from nodeguard.remediation.restarts import Restarts
from nodeguard.remediation.views import NodeView, PodView
from nodeguard.remediation.world import World

Submit = Callable[[Call], object]
"""Has a call done on another thread."""

_TICK = 0.5
_AT_ONCE = 1024
_LOOK_EVERY = 30.0
_SLICE = 500
"""Nodes a turn, so that what changes meanwhile is decided in time."""


class Loop:
    """Decides. ``node_changed`` and ``pod_changed`` may be called from any thread."""

    def __init__(self, api: Api, ledger: Ledger, clock: Clock, policy: Callable[[], Policy], tell: Tell,  # noqa: PLR0913
                 submit: Submit, namespace: str) -> None:
        """``submit`` has a call done elsewhere; ``namespace`` is that of nodeguard's own objects."""
        self._api, self._namespace, self._clock, self._ledger = api, namespace, clock, ledger
        self._do = self._elsewhere(submit)
        self._shift = clock.wall() - clock.boot()
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self.world = World()
        owners = Owners(api)
        mover = Mover(api, owners, ledger.leading, namespace)
        self.restarts = Restarts(api, owners, self.world, tell, self._do, self.touch, self.now,
                                 ledger.leading, namespace)
        self.brakes = Brakes(api, ledger, namespace, policy, tell, self._do, self.now)
        self.cases = Cases(self.world, self.restarts, self.brakes, mover, Hands(api, ledger), policy, tell,
                           self._do, self.touch, self.now)
        self._dirty: dict[str, None] = {}
        self._timers: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        """When each node's next timer ends: later ones are set anew by the decision made then."""
        self._sweep: deque[str] = deque()
        """Nodes that are still to be looked at although nothing changed, a slice a turn."""
        self._led = False
        self._looked = float("-inf")
        self.turned = clock.boot()
        """Boot time of the last turn, for liveness."""
        self.delays: deque[float] = deque(maxlen=4096)
        """Seconds from a change's arrival until its decision was made."""

    def now(self) -> float:
        """Unix seconds that do not step: the wall clock as it was at the start, going on with the boot clock."""
        return self._clock.boot() + self._shift

    def _elsewhere(self, submit: Submit) -> Callable[[Callable[[], Call]], None]:
        """Do a blocking deed elsewhere; what it returns is called on this thread."""
        def do(deed: Callable[[], Call]) -> None:
            submit(lambda: self._calls.put(deed()))
        return do

    def node_changed(self, name: str, _old: NodeView | None, new: NodeView | None) -> None:
        """A Node was added, changed or deleted."""
        arrived = self._clock.boot()

        def take() -> None:
            known = self.world.nodes.get(name)
            if known is not None and (new is None or new.uid != known.uid):
                self._node_gone(known)
            if new is not None and self.world.set_node(name, new):
                self.touch(name)
                self.delays.append(self._clock.boot() - arrived)
        self._calls.put(take)

    def _node_gone(self, node: NodeView) -> None:
        """It was deleted, though another one may have its name already."""
        self.world.set_node(node.name, None)
        self.cases.node_gone(node.name, node.uid)
        self.restarts.node_gone(node.name)

    def pod_changed(self, key: str, _old: PodView | None, new: PodView | None) -> None:
        """An accelerator pod was added, changed or deleted."""
        def take() -> None:
            old = self.world.pods.get(key)
            self.world.set_pod(key, new)
            self.cases.pod_changed(old, new)
            self.restarts.pod_changed(old, new)
            for pod in (old, new):
                if pod is not None and pod.node:
                    self.touch(pod.node)
        self._calls.put(take)

    def claim_changed(self, key: str, _old: tuple[str, ...] | None, new: tuple[str, ...] | None) -> None:
        """A ResourceClaim was added, changed or deleted; what counts of it are its device classes."""
        def take() -> None:
            self.world.claims.pop(key, None)
            if new is not None:
                self.world.claims[key] = new
        self._calls.put(take)

    def synced(self) -> None:
        """The first lists of Nodes and pods have been told whole."""
        self._calls.put(self._set_synced)

    def _set_synced(self) -> None:
        self.cases.ready = True
        self.touch_all()

    def touch(self, name: str, at: float | None = None) -> None:
        """Decide for this node in this turn, or at ``at`` (Unix seconds)."""
        if at is None or at <= self.now():
            self._dirty[name] = None
        elif at < self._due.get(name, float("inf")):
            self._due[name] = at
            heapq.heappush(self._timers, (at, name))

    def touch_all(self) -> None:
        """Decide for every node."""
        self._dirty.update(dict.fromkeys(self.world.nodes))

    def run(self, stop: threading.Event) -> None:
        """Turn until ``stop`` is set."""
        while not stop.is_set():
            self.turn(self._wait())

    def _wait(self) -> float:
        if self._dirty or self._sweep:
            return 0.0
        due = self._timers[0][0] - self.now() if self._timers else _TICK
        return min(max(due, 0.0), _TICK)

    def _recall(self) -> Call:
        known = recall(self._api, self._namespace)
        return lambda: self.restarts.remember(known)

    def turn(self, timeout: float = 0.0) -> None:
        """Take what waits, for at most ``timeout`` seconds if nothing does, and decide."""
        self.turned = self._clock.boot()
        self._take(timeout)
        while self._timers and self._timers[0][0] <= self.now():
            at, name = heapq.heappop(self._timers)
            if self._due.get(name) == at:
                del self._due[name]
                self._dirty[name] = None
        if not self._lead():
            return
        for _ in range(min(_SLICE, len(self._sweep))):
            self._dirty.setdefault(self._sweep.popleft())
        names, self._dirty = tuple(self._dirty), {}
        for name in names:
            self.cases.decide(name)
        self.restarts.look()
        if self.brakes.look(self.world.sizes(self.cases.policy())):
            self.touch_all()

    def _take(self, timeout: float) -> None:
        try:
            self._calls.get(timeout=timeout)() if timeout > 0 else self._calls.get_nowait()()
            for _ in range(_AT_ONCE):
                self._calls.get_nowait()()
        except queue.Empty:
            return

    def _lead(self) -> bool:
        """Whether to act; at the beginning of a term everything is looked at anew."""
        if not self._ledger.leading():
            self._led = False
            return False
        if not self.cases.ready:
            return False
        now = self._clock.boot()
        if not self._led or now - self._looked >= _LOOK_EVERY:
            if not self._led:
                self.brakes.begin_term()
                self.cases.begin_term()
                self._do(self._recall)
            self._led, self._looked = True, now
            self.restarts.find()
            self.brakes.read()
            self.cases.tidy()
            self._sweep = deque(self.world.nodes)
        return True
