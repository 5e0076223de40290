"""Carries the machine's commands out against the API. Called from several threads, for one node at a time each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from nodeguard.kube.api import MERGE_PATCH, Api, Object, node_path
from nodeguard.model.errors import ApiConflict, ApiError, ApiNotFound
from nodeguard.model.policy import Policy
from nodeguard.remediation import budget, record
from nodeguard.remediation.machine import Begin, Clear, Write
from nodeguard.remediation.views import NodeView, node_view


class Ledger(Protocol):
    """The leader's Lease, as far as the loop needs it."""

    def leading(self) -> bool:
        """Whether this replica may act now."""
        ...

    @property
    def ledger(self) -> Object:
        """The ledger as last read or written."""
        ...

    def update_ledger(self, change: Callable[[Object], Object | None]) -> Object | None:
        """Change the ledger by compare-and-swap; None when ``change`` gave None. ApiError: not changed, or not told."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of a command."""

    done: bool
    node: NodeView | None = None
    """The Node after the write; None: unchanged, or gone."""
    gone: bool = False
    refusal: str = ""
    """The budget's, when it gave no slot."""
    failure: str = ""
    """Why it was not done; it is tried again."""


NOT_LEADING = Written(done=False, failure="another replica leads")


class Hands:
    """Writes Nodes and the ledger."""

    def __init__(self, api: Api, ledger: Ledger) -> None:
        self._api, self._ledger = api, ledger

    @property
    def ledger(self) -> Object:
        """The ledger as last read or written."""
        return self._ledger.ledger

    def begin(self, node: NodeView, command: Begin, policy: Policy, sizes: Mapping[str, int], now: float) -> Written:
        """Take a slot, then mark the node. A slot that it has already is kept."""
        refusal = ""

        def change(ledger: Object) -> Object | None:
            nonlocal refusal
            if budget.has_slot(ledger, node.name, node.uid):
                return None
            refusal = budget.refusal(ledger, node, sizes, policy.budget, now)
            return None if refusal else budget.taken(ledger, node, command.record.incident, policy.budget, now)

        try:
            self._ledger.update_ledger(change)
        except ApiError as error:
            return Written(done=False, failure=f"no budget slot could be taken: {error}")
        if refusal:
            return Written(done=False, refusal=refusal)
        written = self.write(node, Write(command.record))
        if written.gone:
            # deleted while its slot was being taken: the watch told of that before there was a slot to free
            self.free(node.name, node.uid)
        return written

    def write(self, node: NodeView, command: Write) -> Written:
        """Write record and taint."""
        return self._patch(node, record.patch(node, command.record))

    def clear(self, node: NodeView, command: Clear) -> Written:
        """Remove the marks, then free the slot."""
        written = Written(done=True)
        if node.record is not None or record.has_own_taint(node) or command.word or command.record is not None:
            written = self._patch(node, record.patch(node, command.record, without_words=command.word))
            if not written.done and not written.gone:
                return written
        failure = self.free(node.name, node.uid)
        return Written(done=not failure, node=written.node, gone=written.gone, failure=failure)

    def free(self, name: str, uid: str) -> str:
        """Free this very Node's slot, if it has one; why that failed, or nothing."""
        try:
            self._ledger.update_ledger(lambda ledger: budget.freed(ledger, name, uid))
        except ApiError as error:
            return f"the budget slot of {name} could not be freed: {error}"
        return ""

    def _patch(self, node: NodeView, patch: Object) -> Written:
        if not self._ledger.leading():
            return NOT_LEADING
        try:
            return Written(done=True, node=node_view(self._api.patch(node_path(node.name), patch, MERGE_PATCH)))
        except ApiConflict:
            return self._read_again(node)
        except ApiNotFound:
            return Written(done=False, gone=True)
        except ApiError as error:
            return Written(done=False, failure=f"the Node {node.name} could not be written: {error}")

    def _read_again(self, node: NodeView) -> Written:
        """Somebody changed the Node: give what it is now, so that the decision is made anew."""
        try:
            return Written(done=False, node=node_view(self._api.get(node_path(node.name))))
        except ApiNotFound:
            return Written(done=False, gone=True)
        except ApiError as error:
            return Written(done=False, failure=f"the Node {node.name} could not be read: {error}")


