"""What the loop tells of its work: the stream from which incidents, metrics, Events and the log are made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from nodeguard.remediation.owners import Owner
from nodeguard.remediation.record import Record
from nodeguard.remediation.report import Report
from nodeguard.remediation.views import NodeView, PodView

What = Literal[
    "begun",        # a slot was taken and the node is marked: ``record`` holds detected, conditioned, quarantined
    "state",        # the record reached another state
    "evicted",      # evictions were accepted for ``pods``
    "suspended",    # the gang of ``owner`` was suspended, or this node joined a restart that was under way
    "gone",         # every pod that was to leave is gone
    "resumed",      # the gang of ``owner`` was resumed
    "bound",        # every replacement is bound to a node
    "running",      # every replacement runs
    "waits",        # ``text`` says what is waited for
    "closed",       # the work has ended; ``text``: released, cancelled, node-deleted
    "held",         # a storm or a brake holds the node
    "storm",        # many nodes at fault at once: nothing more is begun
    "storm-over",
    "braked",       # one rule tainted too many nodes: the brake is written; ``text`` is the rule
    "doubt",        # ``owner`` may not heal by a restart; ``text`` says why
    "unknown-kind",  # pods of ``owner`` were evicted, and nobody knows whether its kind makes new ones
    "would",        # dry run: ``text`` says what would have been done
    "failed",       # something could not be done; it is tried again
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One thing that happened. ``at`` in Unix seconds; what does not concern a node has none."""

    what: What
    at: float
    node: NodeView | None = None
    record: Record | None = None
    report: Report | None = None
    """What the agent said when the work began: the evidence of the decision."""
    policy: str = ""
    """Hash of the policy in force."""
    owner: Owner | None = None
    pods: tuple[PodView, ...] = ()
    text: str = ""
    count: int = 0

    @property
    def incident(self) -> str:
        """Identity of the piece of work; empty for none."""
        return "" if self.record is None else self.record.incident


Tell = Callable[[Happening], None]
