"""What comes back after a restart: from the state file, or from the Node's own annotation."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from nodeguard.app.remember import Remember, Restored
from nodeguard.config.rules import load_rules
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.engine.engine import Engine
from nodeguard.model.clock import FakeClock
from nodeguard.model.device import NODE, gpu_at
from nodeguard.model.sample import Batch, Booted, Event, Sample, SourceState
from nodeguard.store import Store

RULES = load_rules([shipped_rules_dir()])
GPU = gpu_at("0000:3b:00.0")


class Life:
    """Agents' memories, one after the other, over one state directory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.notes = folder, FakeClock(), list[str]()

    def begin(self, node: dict[str, Any] | None = None, boot_id: str = "b1") -> tuple[Remember, Restored]:
        """The next one's start."""
        remember = Remember(Store(self.folder), self.clock, boot_id, self.notes.append)
        restored = remember.restore(lambda: Engine(RULES, node_name="gpu-7", configured=("kmsg",)), node)
        restored.engine.step(self.clock.boot(), Batch(source="agent", facts=(Booted(boot_id),)))
        return remember, restored


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


def told(code: int, key: str) -> Batch:
    """An Xid."""
    return Batch(source="kmsg", events=(Event("gpu_xid", GPU, {"code": code, "class": "known"}, key=key),))


LOOKING = Batch(source="kmsg", facts=(SourceState(up=True, caught_up=False),))
CAUGHT_UP = Batch(source="kmsg", facts=(SourceState(up=True, caught_up=True),))
NODE_SAYS = {"metadata": {"uid": "u1", "annotations": {"nodeguard.io/faults": json.dumps({
    "v": 1, "boot": "b1", "rules": "r", "at": "2023-11-14T22:13:20.000Z", "cut": 0, "types": ["GpuDriverFault"],
    "faults": [{"rule": "gpu-xid-context-switch-timeout", "device": GPU, "pci": "0000:3b:00.0", "severity": "critical",
                "action": "reset_gpu", "effect": "noschedule", "scope": "device", "count": 3,
                "since": "2023-11-14T22:13:00.000Z"}]})}}}


def test_faults_and_events_come_back(life: Life) -> None:
    """Faults stand as they were, Events that were not told are handed back, and the kernel log goes on."""
    remember, first = life.begin()
    first.engine.step(life.clock.boot(), told(109, "7"))
    remember.save(first.engine, {"cursor": 7}, {"waiting": [{"reason": "X"}]})
    _, second = life.begin()
    assert [fault.key for fault in second.engine.open_faults()] == ["kmsg/7"]
    assert second.kernel_log == {"cursor": 7}
    assert second.events == {"waiting": [{"reason": "X"}]}
    assert not second.needs_node


def test_not_ready_before_the_kernel_log_was_read_on(life: Life) -> None:
    """What the last agent did not save may be on the Node: nothing is written until the log was read to its end."""
    remember, first = life.begin()
    first.engine.step(life.clock.boot(), CAUGHT_UP)
    assert first.engine.intent().ready
    remember.save(first.engine, {}, {})
    _, second = life.begin()
    assert not second.engine.intent().ready
    second.engine.step(life.clock.boot(), LOOKING)
    second.engine.step(life.clock.boot(), Batch(source="kmsg", samples=(Sample("gpu_recovery_action", GPU, 0),)))
    assert not second.engine.intent().ready
    second.engine.step(life.clock.boot(), CAUGHT_UP)
    intent = second.engine.intent()
    assert intent.ready
    assert {one.status for one in intent.conditions if one.type.startswith("Gpu")} <= {"False"}


def _whole(snapshot: dict[str, Any]) -> bytes:
    rest = json.dumps(snapshot).encode()[1:] + b"\n"
    return b'{"crc32":"%08x",%s' % (zlib.crc32(rest), rest)


@pytest.mark.parametrize("part", [
    {"boot": {}}, {"boot": {"engine": {}}}, {"boot": {"engine": {"faults": [7]}, "kmsg": {}}}, {"boot": {"engine": 7}},
    {"node": {"soak": 7}}, {"node": {"inventory": [7]}}, {"node": {"faults": [{}]}, "boot_id": "b0"},
])
def test_whole_file_of_strange_content(life: Life, part: dict[str, Any]) -> None:
    """A right checksum is no promise: what is not understood is set aside, and the Node's annotation serves."""
    snapshot = {"v": 1, "node_uid": "u1", "boot_id": "b1", "node": {"x": 1}, "boot": {}, **part}
    (life.folder / "state.json").write_bytes(_whole(snapshot))
    _, restored = life.begin(NODE_SAYS)
    assert any("not understood" in note for note in life.notes)
    (fault,) = restored.engine.open_faults()
    assert (fault.rule, fault.count) == ("gpu-xid-context-switch-timeout", 3)
    assert list(life.folder.glob("state.json.torn-*"))


def test_nothing_known_and_no_answer(life: Life) -> None:
    """Without state file and API server the Node must be read before it is written; late faults win over the Node."""
    remember, restored = life.begin(None)
    assert restored.needs_node
    restored.engine.step(life.clock.boot(), told(109, "9"))
    remember.restore_annotation(restored.engine, NODE_SAYS)
    (fault,) = restored.engine.open_faults()
    assert (fault.key, fault.count) == ("kmsg/9", 1)
    assert fault.device != NODE
