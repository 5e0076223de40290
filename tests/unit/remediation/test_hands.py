"""What is written for a command, and what is taken back when it cannot be."""

from nodeguard.model.policy import Policy
from nodeguard.remediation.hands import Hands
from nodeguard.remediation.machine import Begin
from nodeguard.remediation.record import Record
from nodeguard.remediation.views import node_view

from .cluster import NODES, Cluster
from .rig import FakeLedger


def test_a_node_deleted_while_its_slot_is_taken_keeps_no_slot() -> None:
    """The watch told of the deletion before there was a slot to free, so nobody else would free it soon."""
    cluster, ledger = Cluster(), FakeLedger()
    cluster.node("a")
    node = node_view(cluster.read(f"{NODES}/a"))

    def delete() -> None:
        ledger.before_write = lambda: None
        cluster.remove(f"{NODES}/a")

    ledger.before_write = delete
    begin = Begin(Record(state="draining", incident="i1", since=cluster.now))
    written = Hands(cluster, ledger).begin(node, begin, Policy(), {"": 1}, cluster.now)
    assert (written.done, written.gone) == (False, True)
    assert ledger.ledger["slots"] == {}
