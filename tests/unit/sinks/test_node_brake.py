"""The brake: conditions and annotation stay, no taint is added, and letting go is noticed."""

from nodeguard.kube.brake import Brake, Hold
from nodeguard.sinks.node import NodeWriter, Pace

from .rig import HEALTHY, OWN_TAINT, Rig, make_condition, make_fault, make_intent

BRAKED = make_fault("gpu-hot", rule_hash="0123456789abcdef", effect="noschedule")
OTHER = make_fault("gpu-lost", rule_hash="fedcba9876543210", condition="GpuLost")
HOLDS_HOT = Brake(rules={"gpu-hot": Hold("0123456789abcdef")})


class BrakedRig(Rig):
    """A writer whose brake a test pulls by hand."""

    def __init__(self) -> None:
        self.brake = Brake()
        self.asked = 0
        super().__init__(Pace(burst=10_000))

    def restarted(self) -> NodeWriter:
        """A writer as a new process has it."""
        self.writer = NodeWriter(self.api, "gpu-7", self.clock, pace=self.pace, brake=self._read)
        return self.writer

    def _read(self) -> Brake:
        self.asked += 1
        return self.brake



def test_a_braked_rule_adds_no_taint() -> None:
    """The condition is true, the annotation says held, and the taint is not there."""
    rig = BrakedRig()
    rig.brake = HOLDS_HOT
    rig.say(make_intent([make_condition()], [BRAKED], "GpuMemoryFault"))
    assert rig.taints == []
    assert rig.condition["status"] == "True"
    assert rig.document["faults"][0]["held"] is True


def test_letting_go_of_the_brake_adds_the_taint() -> None:
    """The brake is read again every few seconds while it holds something."""
    rig = BrakedRig()
    rig.brake = HOLDS_HOT
    rig.say(make_intent([make_condition()], [BRAKED], "GpuMemoryFault"), 20)
    rig.brake = Brake()
    rig.run(6)
    assert rig.taints == [OWN_TAINT]
    assert "held" not in rig.document["faults"][0]


def test_another_rule_is_not_braked() -> None:
    """A fault of a rule that is not braked asks for the taint with its own condition."""
    rig = BrakedRig()
    rig.brake = HOLDS_HOT
    rig.say(make_intent([make_condition()], [BRAKED, OTHER], "GpuMemoryFault"))
    assert rig.taints == ["nodeguard.io/unhealthy=GpuLost:NoSchedule"]


def test_the_changed_rule_is_not_braked() -> None:
    """The brake knows a rule by its content: another content is another rule."""
    rig = BrakedRig()
    rig.brake = HOLDS_HOT
    changed = make_fault("gpu-hot", rule_hash="aaaaaaaaaaaaaaaa", effect="noschedule")
    rig.say(make_intent([make_condition()], [changed], "GpuMemoryFault"))
    assert rig.taints == [OWN_TAINT]


def test_everything_is_braked() -> None:
    """``all`` holds whatever asks."""
    rig = BrakedRig()
    rig.brake = Brake(everything=Hold())
    rig.say(make_intent([make_condition()], [BRAKED, OTHER], "GpuMemoryFault"))
    assert rig.taints == []


def test_nobody_is_asked_before_removing() -> None:
    """A standing taint is removed without a look at the brake, and kept without one."""
    rig = BrakedRig()
    rig.say(make_intent([make_condition()], [BRAKED], "GpuMemoryFault"))
    asked = rig.asked
    rig.brake = HOLDS_HOT
    rig.run(30)
    assert rig.taints == [OWN_TAINT]
    rig.say(HEALTHY)
    assert (rig.taints, rig.asked) == ([], asked)
