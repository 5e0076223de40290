"""Doctor on the node itself: kernel log, files, rules, port, clock; each over what it is given."""

import os
import socket
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from nodeguard.app import doctor_node
from nodeguard.app.doctor_finding import Finding, examine, exit_code
from nodeguard.app.doctor_system import kernel_log_bytes
from nodeguard.config.options import Address
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.model.clock import SystemClock
from nodeguard.sinks.http import StatusServer
from nodeguard.sinks.metrics import Metrics
from nodeguard.sources.host_clock import WallClock, wall_clock
from nodeguard.store import Store

KIB = 1024
CHECKPOINTS = Path(__file__).parents[2] / "fixtures" / "checkpoint"


def verdicts(findings: Iterable[Finding]) -> dict[str, str]:
    return {one.check: one.verdict for one in findings}


def only(findings: Iterable[Finding]) -> Finding:
    (found,) = findings
    return found


def test_a_kernel_log_that_is_a_file(tmp_path: Path) -> None:
    """It can be read; the kernel's ring is another one."""
    (tmp_path / "kmsg").write_text("6,1,1,-;hello\n")
    assert verdicts(doctor_node.kernel_log(tmp_path / "kmsg", KIB)) == {"kernel log": "ok", "kernel ring": "skipped"}
    (tmp_path / "empty").touch()
    assert "empty" in next(iter(doctor_node.kernel_log(tmp_path / "empty", None))).says


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    """Its lines belong to the agent."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    with path.open("r+b", buffering=0) as agent:
        agent.write(b"a line\n")
        assert verdicts(doctor_node.kernel_log(path, KIB))["kernel log"] == "ok"
        assert agent.read(100) == b"a line\n"


@pytest.mark.parametrize(("ring", "verdict"), [(128 * KIB, "warning"), (256 * KIB, "ok"), (None, "skipped")])
def test_the_ring_of_the_kernels_own_device(ring: int | None, verdict: str) -> None:
    """Small is a warning, unsaid is not evaluated."""
    found = verdicts(doctor_node.kernel_log(Path("/dev/zero"), ring))
    assert found["kernel ring"] == verdict


def test_no_kernel_log_is_a_blind_spot(tmp_path: Path) -> None:
    """With what, where and what to do."""
    found = only(doctor_node.kernel_log(tmp_path / "none", KIB))
    assert found.verdict == "blind"
    assert str(tmp_path / "none") in found.says
    assert found.do


def test_the_test_switch_is_loud() -> None:
    """Believing every program's lines is a warning."""
    assert only(doctor_node.facility(any_facility=True)).verdict == "warning"
    assert only(doctor_node.facility(any_facility=False)).verdict == "ok"


def test_the_boot_id(tmp_path: Path) -> None:
    """Without it the agent does not start."""
    assert only(doctor_node.boot_id(Path("/proc"))).verdict == "ok"
    found = only(doctor_node.boot_id(tmp_path))
    assert (found.verdict, found.mistake) == ("blind", True)


def test_the_state_directory(tmp_path: Path) -> None:
    """Missing, writable, in use; looking leaves nothing behind and takes nothing."""
    state = tmp_path / "state"
    assert "can be made" in only(doctor_node.state_directory(state)).says
    assert not state.exists()
    store = Store(state)
    store.lock()
    in_use = only(doctor_node.state_directory(state))
    store.close()
    assert in_use.verdict == "ok"
    assert f"running agent, pid {os.getpid()}" in in_use.says
    assert "can be written" in only(doctor_node.state_directory(state)).says
    assert [path.name for path in state.iterdir()] == ["lock"]
    Store(state).lock()


def test_a_state_directory_that_cannot_be(tmp_path: Path) -> None:
    """A file in its place, or above it."""
    (tmp_path / "file").touch()
    assert only(doctor_node.state_directory(tmp_path / "file")).verdict == "blind"
    assert only(doctor_node.state_directory(tmp_path / "file" / "state")).verdict == "blind"


def test_rules_and_what_overrides_make_of_them(tmp_path: Path) -> None:
    """Count and hash; changed rules and rules that are off by name."""
    overrides = tmp_path / "ours.yaml"
    overrides.write_text("apiVersion: nodeguard.io/v1\nkind: Overrides\noverrides:\n"
                         "- {rule: gpu-hot, mode: off}\n- {rule: gpu-lost, severity: warning}\n"
                         "- {rule: gpu-xid-uncontained-ecc, mode: observe, nodes: {pool: lab}}\n")
    base, changed = list(doctor_node.rules([shipped_rules_dir()], [overrides], {"pool": "lab"}))
    assert "rules, hash" in base.says
    names, _, off = changed.says.partition("; ")
    assert set(names.removeprefix("changed: ").split(", ")) == {"gpu-xid-uncontained-ecc", "gpu-lost"}
    assert off == "off: gpu-hot"
    unsure = list(doctor_node.rules([shipped_rules_dir()], [overrides], None))[1]
    assert "gpu-xid-uncontained-ecc" not in unsure.says
    assert "certain nodes" in unsure.says


def test_wrong_rules_are_every_mistake(tmp_path: Path) -> None:
    """One line each, and a person's mistake."""
    (tmp_path / "bad.yaml").write_text(
        "apiVersion: nodeguard.io/v1\nkind: Overrides\noverrides:\n- {rule: gpu-hott}\n- {rule: nothing}\n")
    found = list(doctor_node.rules([shipped_rules_dir()], [tmp_path / "bad.yaml"], {}))
    assert len(found) == 2
    assert all(one.mistake and "bad.yaml:" in one.says for one in found)
    assert exit_code(found) == 2


def test_the_kubelets_files(tmp_path: Path) -> None:
    """Seen, empty, unreadable or not there."""
    assert only(doctor_node.pod_files(tmp_path, tmp_path)).verdict == "warning"
    directory = tmp_path / "device-plugins"
    directory.mkdir()
    assert only(doctor_node.pod_files(tmp_path, tmp_path)).verdict == "ok"
    path = directory / "kubelet_internal_checkpoint"
    path.write_bytes((CHECKPOINTS / "numa.json").read_bytes())
    assert "2 GPUs given to 2 pods" in only(doctor_node.pod_files(tmp_path, tmp_path)).says
    assert verdicts(doctor_node.pod_files(tmp_path, tmp_path / "none")) == {"pods": "ok", "pod names": "warning"}
    path.write_text("torn")
    assert only(doctor_node.pod_files(tmp_path, tmp_path)).verdict == "warning"


def test_the_port() -> None:
    """Free; an agent's, well or not; somebody else's."""
    def page(*, well: bool) -> Finding:
        server = StatusServer(("127.0.0.1", 0), Metrics(), lambda: (well, "the loop turned 0.1 s ago"),
                              lambda: (True, ""))
        with server:
            return only(doctor_node.listening(Address("127.0.0.1", server.port)))

    assert (page(well=True).verdict, page(well=False).verdict) == ("ok", "warning")
    assert "the loop turned" in page(well=True).says
    assert only(doctor_node.listening(Address("127.0.0.1", 0))).verdict == "ok"
    with socket.create_server(("127.0.0.1", 0)) as other:
        found = only(doctor_node.listening(Address("127.0.0.1", other.getsockname()[1])))
    assert (found.verdict, found.mistake) == ("blind", True)
    assert only(doctor_node.listening(Address("no.such.host.invalid", 1))).verdict == "blind"


def test_the_clock() -> None:
    """Kept, left alone, unsaid; and far from the API server's."""
    assert verdicts(doctor_node.clock(WallClock(synchronized=True, max_error=0.01), 1.0)) == {"clock": "ok"}
    assert verdicts(doctor_node.clock(WallClock(synchronized=False, max_error=16.0), -30.0)) == {
        "clock": "warning", "clock skew": "warning"}
    assert verdicts(doctor_node.clock(None, None)) == {"clock": "skipped"}
    assert "30 s behind" in list(doctor_node.clock(None, -30.0))[1].says


def test_the_kernel_answers_or_says_nothing() -> None:
    """The two questions that Python has no function for come back, whoever asks."""
    ring, kept = kernel_log_bytes(), wall_clock()
    assert ring is None or ring >= 4 * KIB
    assert kept is None or kept.max_error >= 0


def test_a_check_that_hangs_or_fails_costs_itself() -> None:
    """The others are told, in order, and the exit code says that something was not seen."""
    free = threading.Event()

    def hangs() -> list[Finding]:
        free.wait(10)
        return []

    def fails() -> list[Finding]:
        raise ZeroDivisionError("odd")

    found = examine({"hangs": hangs, "fails": fails, "well": lambda: [Finding("well", "ok", "yes")]},
                    SystemClock(), 0.1)
    free.set()
    assert [(one.check, one.verdict) for one in found] == [("hangs", "blind"), ("fails", "blind"), ("well", "ok")]
    assert "ZeroDivisionError: odd" in found[1].says
    assert exit_code(found) == 1
    assert exit_code(found[2:]) == 0
