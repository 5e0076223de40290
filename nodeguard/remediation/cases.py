"""One node's case after the other: what is seen, what the machine says, and having it done.

Used by the deciding thread only. A node whose command is under way is decided again when the command has ended.
"""

import dataclasses
from collections.abc import Callable

from nodeguard.model.policy import Policy
from nodeguard.remediation import budget, machine, targets
from nodeguard.remediation.brakes import Brakes
from nodeguard.remediation.calls import Call, Elsewhere
from nodeguard.remediation.case import Case, words_for
from nodeguard.remediation.hands import Hands, Written
from nodeguard.remediation.happenings import Happening, Tell, What
from nodeguard.remediation.machine import Begin, Clear, Command, MoveOut, Seen, Write
from nodeguard.remediation.mover import Moved, Mover, Order
from nodeguard.remediation.record import Record
from nodeguard.remediation.report import Fault
from nodeguard.remediation.restarts import Restarts
from nodeguard.remediation.views import NodeView, PodView
from nodeguard.remediation.words import excluding, words_of, working
from nodeguard.remediation.world import World

_TRY_AGAIN = 1.0


class Cases:
    """Every node's case."""

    def __init__(self, world: World, restarts: Restarts, brakes: Brakes, mover: Mover,  # noqa: PLR0913
                 hands: Hands, policy: Callable[[], Policy], tell: Tell, elsewhere: Elsewhere,
                 touch: Callable[..., None], now: Callable[[], float]) -> None:
        self._world, self._restarts, self._brakes, self._mover, self._hands = world, restarts, brakes, mover, hands
        self.policy, self._tell, self._elsewhere, self._touch, self._now = policy, tell, elsewhere, touch, now
        self._cases: dict[str, Case] = {}
        self._waiting: set[str] = set()
        """Nodes without a slot that want one."""
        self.ready = False
        """Whether Nodes and pods are known whole."""

    def begin_term(self) -> None:
        """This replica leads now: nothing is under way, and what stands on the Nodes is all that counts."""
        self._cases.clear()
        for name in self._world.nodes:
            record = self._world.record_of(name)
            if record is not None:
                self._restarts.remember(record.restarts)
                self._restarts.noted(record.restarts)

    def tidy(self) -> None:
        """Free slots that nothing stands for any more, and forget pods that are gone."""
        for name, slot in budget.slots(self._hands.ledger).items():
            if not self._stands(name, slot.get("uid")):
                self._free_slot(name, str(slot.get("uid", "")))
        self._mover.tries.keep((pod.uid for pod in self._world.pods.values()), self._cases)

    def _stands(self, name: str, uid: object) -> bool:
        """Whether this very Node is there, and has work or an agent that tells whether it has."""
        node = self._world.nodes.get(name)
        if node is None or uid != node.uid:
            return False
        busy = name in self._cases and self._cases[name].busy
        return busy or node.record is not None or self._world.report_of(name).known

    def node_gone(self, name: str, uid: str) -> None:
        """The Node was deleted: its slot is free, and its restarts are finished by :class:`.Restarts`."""
        self._cases.pop(name, None)
        self._waiting.discard(name)
        self._brakes.forget(name)
        self._free_slot(name, uid)

    def _free_slot(self, name: str, uid: str) -> None:
        if budget.has_slot(self._hands.ledger, name, uid) and not self.policy().dry_run:
            incident = str(budget.slots(self._hands.ledger)[name].get("incident", ""))
            self._elsewhere(lambda: self._freed(name, uid, incident))

    def _freed(self, name: str, uid: str, incident: str) -> Call:
        failure = self._hands.free(name, uid)
        record = Record(state="quarantined", incident=incident, since=self._now())
        return lambda: self._tell(Happening(what="failed" if failure else "closed", at=self._now(), record=record,
                                            text=failure or "node-deleted"))

    def pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        """A pod that is gone is asked no more."""
        if old is not None and (new is None or new.uid != old.uid):
            self._mover.tries.forget(old.uid)

    def decide(self, name: str) -> None:
        """Look at one node, and have done what is due."""
        node = self._world.nodes.get(name)
        if node is None:
            return
        case = self._cases.get(name)
        if case is not None and case.busy:
            return  # it is decided again when the command has ended
        seen = self._look(node)
        if seen is None:
            return
        case = self._cases.setdefault(name, Case())
        missing = self._restarts.missing(name, seen.record)
        if self.policy().dry_run:
            self._restarts.noted(missing)
        elif seen.record is not None and missing:
            restarts = (*seen.record.restarts, *missing)
            self._do(node, seen, case, Write(dataclasses.replace(seen.record, restarts=restarts)))
            return
        step = machine.step(self._with_case(seen, case), self.policy())
        self._note_waiting(name, step, seen)
        if step.look_at is not None:
            self._touch(name, step.look_at)
        self._say_why(node, seen, case, step)
        if step.command is not None:
            self._do(node, seen, case, step.command)

    def _look(self, node: NodeView) -> Seen | None:
        """What is seen of the node; None: nothing that concerns the loop."""
        name, now = node.name, self._now()
        record, report = self._world.record_of(name), self._world.report_of(name)
        if name in self._world.unreadable:
            return None
        words = words_of(node, now)
        ignored = record.faults if record is not None and record.state == "released" else ()
        faults = working(report.faults, words, ignored)
        self._brakes.note(name, () if excluding(node, self.policy()) else faults)
        report = dataclasses.replace(report, faults=tuple(
            dataclasses.replace(fault, held=fault.held or self._brakes.held(fault)) for fault in report.faults))
        slot = budget.has_slot(self._hands.ledger, name, node.uid)
        if record is None and not faults and not slot and not words.release:
            self._cases.pop(name, None)
            self._waiting.discard(name)
            return None
        faults = working(report.faults, words, ignored)
        leaving = targets.leaving(self._world.pods_on(name), faults, self.policy(), self._accelerates)
        if record is None or record.state == "released":
            leaving = tuple(pod for pod in leaving if not pod.deleting)
        leaving += self._dead_ranks(node, faults, record)
        return Seen(now=now, node=node, record=record, report=report, words=words, slot=slot, leaving=leaving,
                    refusal="" if slot else self._refusal(node, now))

    def _dead_ranks(self, node: NodeView, faults: tuple[Fault, ...], record: Record | None) -> tuple[PodView, ...]:
        """Failed pods of gangs that go on elsewhere and were not restarted for this incident."""
        found = targets.died(self._world.pods_on(node.name), faults, self.policy(), self._accelerates)
        done = {one.owner for one in record.restarts} if record is not None else set()
        return tuple(pod for pod in found if not self._mover.tries.answered(pod.uid)
                     and self._restarts.goes_on_without(pod, done))

    def _accelerates(self, pod: PodView) -> bool:
        return self._world.accelerates(pod, self.policy())

    def _refusal(self, node: NodeView, now: float) -> str:
        policy = self.policy()
        return self._brakes.storm() or budget.refusal(
            self._hands.ledger, node, self._world.sizes(policy), policy.budget, now)

    def _with_case(self, seen: Seen, case: Case) -> Seen:
        ill = any(fault.weighs and fault.rule not in seen.words.silenced for fault in seen.report.faults)
        clean = seen.report.known and not ill
        case.clean_since = (seen.now if case.clean_since is None else case.clean_since) if clean else None
        return dataclasses.replace(seen, clean_since=case.clean_since, waits=case.waits, person=case.person,
                                   blocked_since=self._mover.tries.blocked_since(seen.leaving))

    def _note_waiting(self, name: str, step: machine.Step, seen: Seen) -> None:
        if not step.held:
            self._waiting.discard(name)
            return
        self._waiting.add(name)
        due = budget.next_slot(self._hands.ledger, self.policy().budget, seen.now)
        if due is not None:
            self._touch(name, due + 0.001)

    def _say_why(self, node: NodeView, seen: Seen, case: Case, step: machine.Step) -> None:
        if step.why != case.why:
            case.why = step.why
            if step.why:
                self._say("held" if step.held else "waits", node, seen.record, text=step.why)

    def _do(self, node: NodeView, seen: Seen, case: Case, command: Command) -> None:
        if self.policy().dry_run:
            words = words_for(command)
            if words != case.would:
                case.would = words
                self._say("would", node, seen.record, text=words)
            return
        if isinstance(command, MoveOut):
            self._move(node, seen, case, command)
            return
        case.busy = True
        self._elsewhere(lambda: self._carry(node, seen, command))

    def _carry(self, node: NodeView, seen: Seen, command: Begin | Write | Clear) -> Call:
        match command:
            case Begin():
                policy = self.policy()
                written = self._hands.begin(node, command, policy, self._world.sizes(policy), seen.now)
            case Write():
                written = self._hands.write(node, command)
            case Clear():
                written = self._hands.clear(node, command)
        return lambda: self._carried(node, seen, command, written)

    def _carried(self, node: NodeView, seen: Seen, command: Begin | Write | Clear, written: Written) -> None:
        name = node.name
        known = self._world.nodes.get(name)
        if written.node is not None and known is not None and known.uid == written.node.uid:
            self._world.set_node(name, written.node)
        if written.done:
            self._tell_done(node, seen, command)
        elif written.failure:
            self._say("failed", node, seen.record, text=written.failure)
        # a Node that is gone is one until the watch tells of it
        self._free(name, at=self._now() + _TRY_AGAIN if written.failure or written.gone else None)

    def _tell_done(self, node: NodeView, seen: Seen, command: Begin | Write | Clear) -> None:
        if isinstance(command, Clear):
            if seen.record is not None and command.outcome:
                self._say("closed", node, seen.record, text=command.outcome)
                self._restarts.replacements.forget(seen.record.incident)
            for name in self._waiting:
                self._touch(name)
            return
        record = command.record
        self._restarts.noted(record.restarts)
        if isinstance(command, Begin):
            self._tell(Happening(what="begun", at=self._now(), node=node, record=record, report=seen.report,
                                 policy=self.policy().hash))
        elif seen.record is None or seen.record.state != record.state:
            if record.state == "repairing":
                self._say("gone", node, record)
            self._say("state", node, record, text=record.reason)

    def _free(self, name: str, at: float | None = None) -> None:
        """The node's command has ended: decide again."""
        case = self._cases.get(name)
        if case is not None:
            case.busy = False
        self._touch(name, at)

    def _move(self, node: NodeView, seen: Seen, case: Case, command: MoveOut) -> None:
        due = self._mover.tries.due(command.pods, seen.now)
        if not due or seen.record is None:
            self._touch(node.name, self._mover.tries.next_due(command.pods))
            return
        case.busy = True
        order = Order(node=node.name, incident=seen.record.incident, policy=self.policy(), now=seen.now,
                      pods=tuple(self._world.pods.values()), nodes=tuple(self._world.nodes.values()),
                      going=frozenset(self._restarts.going), history=self._restarts.history())

        def deed() -> Call:
            moved = self._mover.move(due, order)
            return lambda: self._moved(node, order, moved)
        self._elsewhere(deed)

    def _moved(self, node: NodeView, order: Order, moved: Moved) -> None:
        case = self._cases.get(node.name)
        if case is not None:
            case.waits, case.person = moved.waits, moved.person
        record = self._world.record_of(node.name) if node.name in self._world.nodes else None
        if moved.evicted:
            self._say("evicted", node, record, pods=moved.evicted)
            self._restarts.evicted(order.incident, moved.evicted)
        for owner in moved.over:
            self._restarts.over(owner.uid)
        if moved.unsure:
            self._restarts.find_until_told()
        self._restarts.commanded(node.name, moved.commanded)
        for owner in moved.unknown:
            self._tell(Happening(what="unknown-kind", at=self._now(), node=node, record=record, owner=owner))
        self._begun(node, record, order, moved)
        self._free(node.name, moved.look_at)

    def _begun(self, node: NodeView, record: Record | None, order: Order, moved: Moved) -> None:
        """Take the restarts that were begun or joined."""
        for going in [begun.going for begun in moved.begun if begun.going is not None]:
            self._restarts.took(going)
            self._restarts.replacements.expect(
                order.incident, going.owner.gang, self._mover.gang_of(going.owner, order.pods))
            self._tell(Happening(what="suspended", at=self._now(), node=node, record=record, owner=going.owner,
                                 count=going.failed_ranks))
            for text in going.doubts:
                self._tell(Happening(what="doubt", at=self._now(), owner=going.owner, text=text))

    def _say(self, what: What, node: NodeView, record: Record | None, *, text: str = "",
             pods: tuple[PodView, ...] = ()) -> None:
        self._tell(Happening(what=what, at=self._now(), node=node, record=record, text=text, pods=pods,
                             policy=self.policy().hash))
