"""Every combination of what the machine can see: it always answers, and never breaks a promise."""

import dataclasses
import itertools
from collections.abc import Iterator

import pytest

from nodeguard.model.policy import Policy
from nodeguard.remediation.machine import Begin, Clear, MoveOut, Seen, Step, Write, step
from nodeguard.remediation.record import STATES, Record
from nodeguard.remediation.report import ABSENT, Fault, Report
from nodeguard.remediation.views import NodeView, PodView, node_view, pod_view
from nodeguard.remediation.words import words_of

NOW = 1_700_000_000.0
POLICY = Policy()
EVICT = Fault(rule="r", rule_hash="h", device="gpu/a", severity="critical", action="reset_gpu", effect="evict",
              scope="node", since=NOW - 5, held=False, pods=None)
REPORTS = {
    "none": Report(), "absent": ABSENT, "evict": Report(faults=(EVICT,)),
    "held": Report(faults=(dataclasses.replace(EVICT, held=True),)),
    "noschedule": Report(faults=(dataclasses.replace(EVICT, effect="noschedule"),)),
    "condition": Report(faults=(dataclasses.replace(EVICT, effect="condition"),)),
}
ANNOTATIONS = {
    "silent": {}, "hold": {"nodeguard.io/hold": "2999-01-01T00:00:00Z"}, "release": {"nodeguard.io/release": "true"},
    "silence": {"nodeguard.io/silence": "r:2999-01-01T00:00:00Z"},
}


def node(words: str, *, cordoned: bool) -> NodeView:
    """A Node with a person's words."""
    return node_view({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1", "annotations": ANNOTATIONS[words]},
                      "spec": {"unschedulable": cordoned}, "status": {}})


def pod(*, deleting: bool) -> PodView:
    """A pod that is to leave."""
    metadata = {"name": "p", "namespace": "ns", "uid": "p", **({"deletionTimestamp": "x"} if deleting else {})}
    view = pod_view({"metadata": metadata, "spec": {"nodeName": "n", "containers": [
        {"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}})
    assert view is not None
    return view


def record(state: str | None, age: float) -> Record | None:
    """A record that has been in this state for so long."""
    if state is None:
        return None
    return Record(state=state, incident="i", since=NOW - age, faults=(EVICT.key,),  # type: ignore[arg-type] # each state
                  stamps={"draining": NOW - age})


def everything() -> Iterator[Seen]:
    """The product of all that matters."""
    for state, report, words, cordoned, slot, leaving, refusal, age, waits, person in itertools.product(
            (None, *STATES), REPORTS, ANNOTATIONS, (False, True), (False, True), ("no", "staying", "ending"),
            ("", "budget"), (1.0, 10_000.0), ("", "waits"), ("", "person")):
        view = node(words, cordoned=cordoned)
        pods = () if leaving == "no" else (pod(deleting=leaving == "ending"),)
        told = REPORTS[report]
        clean = NOW - age if told.known and not any(fault.weighs for fault in told.faults) else None
        yield Seen(now=NOW, node=view, record=record(state, age), report=told, words=words_of(view, NOW),
                   leaving=pods, refusal="" if slot else refusal, slot=slot, waits=waits, person=person,
                   clean_since=clean)


def decided() -> Iterator[tuple[Seen, Step]]:
    """What the machine says to each."""
    for seen in everything():
        yield seen, step(seen, POLICY)


def test_no_promise_is_broken_in_any_combination() -> None:
    """Thousands of situations, each with its right."""
    count = 0
    for seen, decision in decided():
        count += 1
        held = seen.words.hold_until is not None or seen.node.unschedulable
        acting = [fault for fault in seen.report.faults if fault.evicts and fault.rule not in seen.words.silenced]
        match decision.command:
            case Begin(record=begun):
                assert acting
                assert not held
                assert seen.slot or not seen.refusal
                assert seen.record is None or seen.record.state == "released"
                assert begun.tainted
                assert begun.state == ("quarantined" if seen.waits or seen.person else "draining")
            case MoveOut(pods=pods):
                assert seen.record is not None
                assert seen.record.state in ("draining", "stuck", "needs-person")
                assert not held
                assert pods
                assert not any(one.deleting for one in pods)
            case Write(record=written):
                assert seen.record is not None
                assert written != seen.record
                assert written.incident == seen.record.incident
            case Clear(outcome="released", word=False):
                assert seen.record is not None
                assert seen.record.state == "verifying"
                assert seen.clean_since is not None
                assert NOW - max(seen.clean_since, seen.record.since) >= POLICY.release.healthy_for
            case Clear(outcome="cancelled"):
                assert seen.record is None or seen.record.state in ("quarantined", "released")
            case Clear(word=True):
                assert seen.words.release
        if seen.report is ABSENT and not seen.words.release:
            assert decision.command is None
    assert count == (len(STATES) + 1) * len(REPORTS) * len(ANNOTATIONS) * 2 * 2 * 3 * 2 * 2 * 2 * 2


def test_what_it_writes_is_not_written_again() -> None:
    """After its own write the machine goes on or waits: no state writes itself for ever."""
    for seen, decision in decided():
        path = [seen.record.state if seen.record is not None else None]
        while isinstance(decision.command, Write | Begin) and len(path) < 8:
            written = decision.command.record
            assert written != seen.record
            path.append(written.state)
            seen = dataclasses.replace(seen, record=written, slot=True)  # noqa: PLW2901 # its own next look
            decision = step(seen, POLICY)  # noqa: PLW2901
        assert len(path) < 8, path


@pytest.mark.parametrize(("state", "report", "leaving", "wanted"), [
    (None, "evict", "staying", "Begin"), (None, "noschedule", "staying", None), ("quarantined", "none", "no", "Clear"),
    ("draining", "evict", "staying", "MoveOut"), ("draining", "evict", "ending", None),
    ("draining", "evict", "no", "Write"), ("repairing", "evict", "no", None), ("repairing", "none", "no", "Write"),
    ("verifying", "evict", "no", "Write"), ("released", "evict", "staying", None), ("released", "none", "no", "Clear"),
])
def test_the_plain_way(state: str | None, report: str, leaving: str, wanted: str | None) -> None:
    """One step of each state."""
    endings = {"no": [], "staying": [False], "ending": [True]}[leaving]
    seen = next(seen for seen in everything() if (seen.record.state if seen.record else None) == state
                and seen.report is REPORTS[report] and [one.deleting for one in seen.leaving] == endings
                and not seen.waits and not seen.person and not seen.refusal)
    command = step(seen, POLICY).command
    assert (None if command is None else type(command).__name__) == wanted
