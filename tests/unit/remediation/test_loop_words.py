"""What people say to the loop, and what it does not understand."""

import dataclasses

from .cluster import NODES
from .rig import EVICT, POLICY, Rig
from .test_loop import gang


def test_a_persons_release_gives_a_faulty_node_back() -> None:
    """Open faults are passed over until they close; a new one is new work; the word is taken away."""
    rig = Rig()
    gang(rig, "a", "b")
    rig.cluster.fault("a", EVICT)
    rig.run()
    rig.cluster.annotate("a", "nodeguard.io/release", "true")
    rig.run(60)
    assert rig.state("a") == "released"
    assert rig.ledger.ledger["slots"] == {}
    assert "nodeguard.io/release" not in rig.cluster.read(f"{NODES}/a")["metadata"]["annotations"]
    rig.cluster.fault("a")
    rig.run()
    assert rig.state("a") is None


def test_silence_and_dry_run_write_nothing() -> None:
    """A silenced rule is passed over until its time; a dry run says what it would do."""
    rig = Rig()
    gang(rig, "a", "b")
    rig.cluster.annotate("a", "nodeguard.io/silence", f"{EVICT['rule']}:2023-11-14T22:30:00Z")
    rig.cluster.fault("a", EVICT)
    rig.run(10)
    assert rig.cluster.writes() == []
    rig.run(3600)
    assert rig.state("a") == "repairing"
    rig = Rig(policy=dataclasses.replace(POLICY, dry_run=True))
    gang(rig, "a", "b")
    rig.cluster.fault("a", EVICT)
    rig.run(60)
    assert (rig.cluster.writes(), rig.ledger.writes, rig.happened()) == ([], 0, ["would"])


def test_an_unknown_annotation_or_record_is_left_alone() -> None:
    """Another generation of agent or loop: nothing is begun, nothing overwritten."""
    rig = Rig()
    gang(rig, "a", "b")
    rig.cluster.annotate("a", "nodeguard.io/faults", '{"v": 2, "faults": []}')
    rig.cluster.annotate("b", "nodeguard.io/remediation", '{"v": 9}')
    rig.cluster.fault("b", EVICT)
    rig.run(60)
    assert (rig.cluster.writes(), rig.ledger.writes) == ([], 0)
