"""``across`` with ``require``: companions choose who has a voice."""

from nodeguard.model.device import rdma_port

from .rig import MakeRig, Rig

P1, P2, P3 = (rdma_port(f"mlx5_{number}", 1) for number in range(3))
ALL = {"signal": "rdma_port_state", "is": "INIT", "across": {"kind": "rdma_port", "at_least": "all"},
       "require": [{"signal": "rdma_port_phys_state", "is": "LinkUp"}]}


def links(node: Rig, at: float, *words: str | None) -> None:
    node.polls(at, "rdma_port_phys_state", dict(zip((P1, P2, P3), words, strict=False)), source="rdma")


def states(node: Rig, at: float, *words: str | None) -> list[str]:
    return node.polls(at, "rdma_port_state", dict(zip((P1, P2, P3), words, strict=False)), source="rdma")


def test_all_are_those_that_the_companions_take_in(rig: MakeRig) -> None:
    """A port without a link neither hides the fault nor is named in it."""
    node = rig(ALL)
    links(node, 0, "LinkUp", "LinkUp", "Polling")
    assert states(node, 0, "INIT", "ACTIVE", "DOWN") == []
    assert states(node, 1, "INIT", "INIT", "DOWN") == ["1 opened r node"]
    (fault,) = node.engine.open_faults()
    assert fault.evidence["devices"] == f"{P1}, {P2}"


def test_nobody_left_is_not_all(rig: MakeRig) -> None:
    """Without a voice there is no fault, and an open one ends."""
    node = rig(ALL)
    links(node, 0, "Polling", "Polling")
    assert states(node, 0, "INIT", "INIT") == []
    links(node, 1, "LinkUp", "LinkUp")
    assert states(node, 1, "INIT", "INIT") == ["1 opened r node"]
    links(node, 2, "Polling", "Polling")
    told = [state for at in (2, 3, 4) for state in states(node, at, "DOWN", "DOWN")]
    assert told == ["4 closed r node"]
