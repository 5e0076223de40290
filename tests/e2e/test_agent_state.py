"""A state file that cannot be trusted is said so and set aside; what the Node says of itself is used instead."""

from __future__ import annotations

import json
import random
import zlib
from typing import TYPE_CHECKING

from .agent_nodes import NodeStates, document, faults, own_taints, status
from .agents import RESET_DONE, RESET_DUE, TIMEOUT_WORDS, Rig, eventually
from .test_agent_killed import check_steady

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .controlplane.admin import Admin
    from .controlplane.cluster import Cluster
    from .controlplane.kubelet import FakeKubelet
    from .controlplane.proxy import FaultProxy

RULE = "gpu-xid-context-switch-timeout"


def _truncated(length: float) -> Callable[[bytes], bytes]:
    return lambda data: data[:int(len(data) * length)]


def _flipped(seed: int) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        bit = random.Random(seed).randrange(8 * len(data))  # noqa: S311
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    return flip


def _edited(edit: Callable[[dict[str, object]], object]) -> Callable[[bytes], bytes]:
    """A file that is whole, with a right checksum, and says something else."""
    def change(data: bytes) -> bytes:
        snapshot = json.loads(data)
        del snapshot["crc32"]
        edit(snapshot)
        rest = json.dumps(snapshot).encode()[1:] + b"\n"
        return b'{"crc32":"%08x",%s' % (zlib.crc32(rest), rest)

    return change


def _ways() -> Iterator[tuple[str, str, Callable[[bytes], bytes]]]:
    """Kind under which it is set aside, what the log says, and what is done to the file."""
    for length in (0.0, 0.02, 0.5, 0.999):
        yield "torn", "cut short or damaged", _truncated(length)
    for seed in range(3):
        yield "torn", "cut short or damaged", _flipped(seed)
    yield "torn", "cut short or damaged", lambda _: b"\0" * 4096
    yield "torn", "cut short or damaged", lambda _: b"nodeguard was here\n"
    yield "torn", "another version", _edited(lambda snapshot: snapshot.update(v=99))
    yield "torn", "parts of it are missing", _edited(lambda snapshot: snapshot.pop("boot"))
    yield "torn", "not understood", _edited(lambda snapshot: snapshot.update(boot={"engine": {"faults": [7]}}))
    yield "foreign", "another-uid", _edited(lambda snapshot: snapshot.update(node_uid="another-uid"))


def test_state_files_that_cannot_be_trusted(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """Torn at several lengths, flipped bits, garbage, other versions, another node's: nothing blinks or is invented.

    The log is a pipe: what was read is gone, so only the annotation knows of the fault.
    """
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        slot = rig.hardware.slots[0]
        agent = rig.start()
        rig.wait_ready()
        for _ in range(2):
            rig.hardware.log.xid(slot, 109, TIMEOUT_WORDS)
        # another fault makes the Node tell the count at once
        rig.hardware.log.xid(rig.hardware.slots[1], 119, "Timeout after 6s of waiting for RPC response from GPU1!")
        states.wait_now(lambda node: own_taints(node) and len(faults(node)) == 2, "two faults and the taint")
        agent.end()
        for number, (kind, why, change) in enumerate(_ways()):
            rig.state.write_bytes(change(rig.state.read_bytes()))
            agent = rig.start()
            rig.wait_ready()
            agent.wait_said(f"it was set aside as state.json.{kind}-")
            assert agent.said(why), agent.output()
            assert not agent.said("Traceback")
            agent.wait_said("2 open faults were taken over from the Node's annotation")
            _turn(rig, states, 2 + number % 4)
            agent.end()
        key = (RULE, f"gpu/{slot}")
        check_steady(states.all, "GpuDriverFault", key)
        assert set(faults(states.newest)) == {key, ("gpu-xid-gsp", f"gpu/{rig.hardware.slots[1]}")}
        assert faults(states.newest)[key]["count"] == 2
        _check_cured(rig, states)


def test_torn_state_while_the_api_server_is_away(
    control_plane: Cluster, admin: Admin, kubelet: FakeKubelet, proxy: FaultProxy
) -> None:
    """Then nothing is known for a while; the Node is read before it is written."""
    config = control_plane.kubeconfig_for_token(control_plane.admin_token(), server=proxy.url, ca=proxy.ca)
    with Rig(kubelet.name, config) as rig, NodeStates(admin, rig.node) as states:
        slot = rig.hardware.slots[0]
        agent = rig.start()
        rig.wait_ready()
        rig.hardware.log.xid(slot, 109, TIMEOUT_WORDS)
        states.wait_now(own_taints, "the taint")
        agent.end()
        rig.state.write_bytes(b"")
        proxy.mode = "refuse"
        agent = rig.start()
        agent.wait_said("cannot be read yet")
        rig.hardware.log.xid(rig.hardware.slots[1], 119, "Timeout after 6s of waiting for RPC response from GPU1!")
        agent.wait_said("gpu-xid-gsp")
        proxy.heal()
        states.wait_now(lambda node: len(faults(node)) == 2, "both faults", 20)
        check_steady(states.all, "GpuDriverFault", (RULE, f"gpu/{slot}"))
        _check_cured(rig, states)


def test_reboot(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """Under another boot ID a fault that a reboot cures is closed, and one that waits for a new part stays."""
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        slot, worn = rig.hardware.slots[:2]
        agent = rig.start()
        rig.wait_ready()
        rig.hardware.log.xid(slot, 79, "GPU has fallen off the bus.")
        rig.hardware.log.xid(worn, 64, "Row Remapper Error: (0x0000000018f00000) - Row Remapping table is full")
        states.wait_now(lambda node: status(node, "GpuLost") == "True" and own_taints(node), "the GPU is lost")
        eventually(lambda: len(faults(states.newest)) == 2, "two faults", more=lambda: faults(states.newest))
        (stays,) = (key for key in faults(states.newest) if key[0] != "gpu-lost")
        since = faults(states.newest)[stays]["since"]
        agent.kill()
        rig.reboot()
        rig.start()
        node = states.wait_now(lambda node: status(node, "GpuLost") == "False", "the reboot cured it", 20)
        assert set(faults(node)) == {stays}
        assert document(node)["boot"] == rig.hardware.boot_id
        assert faults(node)[stays]["since"] == since
        assert own_taints(node)


def _turn(rig: Rig, states: NodeStates, number: int) -> None:
    """Another fault comes and goes: the agent works, and writes."""
    slot = rig.hardware.slots[number]
    rig.hardware.log.xid(slot, 154, RESET_DUE)
    states.wait_now(lambda node: status(node, "GpuRecoveryRequired") == "True", "a fault opens", 20)
    rig.hardware.log.xid(slot, 154, RESET_DONE)
    states.wait_now(lambda node: status(node, "GpuRecoveryRequired") == "False", "and is over", 20)


def _check_cured(rig: Rig, states: NodeStates) -> None:
    """What was taken over from the annotation is cured like any fault."""
    if not rig.running:
        rig.start()
        rig.wait_ready()
    for slot in rig.hardware.slots[:2]:
        rig.hardware.log.xid(slot, 154, RESET_DUE)
        rig.hardware.log.xid(slot, 154, RESET_DONE)
    states.wait_now(lambda node: not own_taints(node) and not faults(node), "all is cured", 20)
