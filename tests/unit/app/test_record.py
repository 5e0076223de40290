"""A recording of a live agent on a simulated node replays to what that agent made of it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from nodeguard.app.agent import Agent
from nodeguard.app.record import Recorder
from nodeguard.app.replay import Player, open_recording
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.model.clock import SystemClock
from nodeguard.model.errors import Problem, UserError
from nodeguard.model.fault import Fault
from nodeguard.sim import rdma
from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sim.node import SimulatedNode
from nodeguard.sim.scenarios import SCENARIOS, print_inventory
from nodeguard.sources.recording.reader import Act, entries_of_file

from .rig import shipped

Row = tuple[str, str, str, str, str]
"""Transition, rule, device, effect and detail."""

_PATIENCE = 12.0


class Heard:
    """A log that keeps the transitions, and lets a test wait for one."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._told = threading.Condition()

    def warning(self, event: str, /, **fields: object) -> None:
        """See :class:`nodeguard.sinks.log.Log`."""
        kind, _, transition = event.partition(" ")
        if kind == "fault":
            row = (transition, *(str(fields[name]) for name in ("rule", "device", "effect", "detail")))
            with self._told:
                self.rows.append(row)  # type: ignore[arg-type] # five of them
                self._told.notify_all()

    debug = info = error = warning

    def wait_for(self, transition: str, rule: str) -> None:
        """Until the agent says so."""
        with self._told:
            found = self._told.wait_for(lambda: any(row[:2] == (transition, rule) for row in self.rows), _PATIENCE)
        assert found, (transition, rule, self.rows)


@dataclass
class Node:
    """A simulated node whose agent can be started again."""

    node: SimulatedNode
    driver: SimulatedDriver
    faults: list[Fault] = field(default_factory=list)
    """Open at the end of the last agent."""

    def breaks(self, name: str, gpu: int) -> None:
        SCENARIOS[name].breaks(self.node, self.driver, gpu)

    def mends(self, name: str, gpu: int) -> None:
        mend = SCENARIOS[name].mend
        assert mend is not None
        mend(self.node, self.driver, gpu)

    @contextmanager
    def agent(self, recorder: Recorder, **more: object) -> Iterator[Heard]:
        """An agent at work, which writes a recording; ``more`` are settings."""
        settings = {**self.node.settings, "no_kube": True, "listen": "127.0.0.1:0", "no_host": True, **more}
        heard = Heard()
        agent = Agent(resolve_agent_settings(settings, {}), SystemClock(), heard, None, recorder)
        thread = threading.Thread(target=agent.run)
        thread.start()
        try:
            yield heard
        finally:
            agent.stop()
            thread.join()
            self.faults = agent.engine.open_faults()


@pytest.fixture
def node() -> Iterator[Node]:
    with SimulatedNode("gpu-1", 4) as node, SimulatedDriver.at(node.slots, node.uuids) as driver:
        node.attach(driver)
        rdma.apply(node.sys_root, rdma.healthy_node())
        try:
            yield Node(node, driver)
        finally:
            driver.release_all()
            for one in driver.gpus:
                one.release_all()


def played(file: Path) -> tuple[list[Row], list[Fault]]:
    """The transitions of a recording, and the faults that are open at its end."""
    problems: list[Problem] = []
    player = Player(shipped())
    rows: list[Row] = [(one.transition, one.fault.rule, one.fault.device, one.fault.effect, one.detail)
                       for one in player.play(acts_of(file, problems))]
    assert problems == []
    return rows, player.engine.open_faults()


def told_by_itself(entry: dict[str, object]) -> list[str]:
    """What an entry says in the sources' own words, without what they made of it."""
    return [] if "told" in entry else [key for key in entry if key != "at"]


def acts_of(file: Path, problems: list[Problem]) -> Iterator[Act]:
    return open_recording(entries_of_file(file, problems), str(file), problems)


@pytest.mark.slow
def test_a_recording_replays_to_exactly_what_the_agent_made(node: Node, tmp_path: Path) -> None:
    """Kernel lines, a lost GPU, a call that hangs, RDMA ports: the same transitions in the same order, and the same
    faults to the last digit of their times, their counts and their pods."""
    file = tmp_path / "night.jsonl"
    with node.agent(Recorder(file)) as heard:
        print_inventory(node.node, node.driver, 0)
        node.breaks("ecc", 0)
        heard.wait_for("opened", "gpu-xid-uncontained-ecc")
        node.mends("ecc", 0)
        node.breaks("hang", 1)
        node.breaks("reset", 2)
        heard.wait_for("opened", "gpu-driver-stalled")
        rdma.apply(node.node.sys_root, rdma.down(rdma.COMPUTE[3]))
        heard.wait_for("opened", "rdma-port-down")
        node.mends("hang", 1)
        node.node.log.write("something \u20ac that no parser knows")
        node.breaks("xid79", 3)
        heard.wait_for("opened", "gpu-lost")
        heard.wait_for("closed", "gpu-xid-uncontained-ecc")
    rows, faults = played(file)
    assert len(rows) >= 6
    assert rows == heard.rows
    assert faults == node.faults
    raw = [key for line in file.read_text().splitlines() for key in told_by_itself(json.loads(line))]
    assert {"recorded", "kmsg", "sysfs", "pods", "until"} <= set(raw)


@pytest.mark.slow
def test_the_next_agents_recording_begins_with_its_memory(node: Node, tmp_path: Path) -> None:
    """Faults that were open before are not told again, and end as they do in the agent."""
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    with node.agent(Recorder(first)) as heard:
        node.breaks("ecc", 0)
        heard.wait_for("opened", "gpu-xid-uncontained-ecc")
    with node.agent(Recorder(second)) as heard:
        node.breaks("ecc", 0)
        node.mends("ecc", 0)
        heard.wait_for("closed", "gpu-xid-uncontained-ecc")
    rows, faults = played(second)
    assert ("opened", "gpu-xid-uncontained-ecc") not in [row[:2] for row in rows]
    assert rows == heard.rows
    assert faults == node.faults
    assert "memory" in second.read_text()


class Page(BaseHTTPRequestHandler):
    """An exporter's page."""

    asked = threading.Event()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-aaaa"} 41\n')
        self.asked.set()

    def log_message(self, *_: object) -> None:  # says nothing
        return


@pytest.mark.slow
def test_exporters_and_lines_of_any_facility_are_recorded(node: Node, tmp_path: Path) -> None:
    """Pages as they came, and the switch that decides which lines are believed."""
    file = tmp_path / "night.jsonl"
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        exporter = [f"dcgm=http://127.0.0.1:{server.server_port}/metrics"]
        try:
            with node.agent(Recorder(file), exporter=exporter, kmsg_any_facility=True) as heard:
                assert Page.asked.wait(_PATIENCE)
                with node.node.log.path.open("wb") as log:
                    log.write(b"12,0,5000000,-;NVRM: Xid (PCI:0000:1b:00): 95, Uncontained\n")
                heard.wait_for("opened", "gpu-xid-uncontained-ecc")
        finally:
            server.shutdown()
            thread.join()
    rows, faults = played(file)
    assert rows == heard.rows
    assert faults == node.faults
    raw = [key for line in file.read_text().splitlines() for key in told_by_itself(json.loads(line))]
    assert {"exporter", "kmsg"} <= set(raw)


@pytest.mark.slow
def test_a_recording_is_whole_at_any_cut(node: Node, tmp_path: Path) -> None:
    """A crash in the middle of the last line costs that line only."""
    file = tmp_path / "night.jsonl"
    with node.agent(Recorder(file)) as heard:
        node.breaks("ecc", 0)
        heard.wait_for("opened", "gpu-xid-uncontained-ecc")
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    for kept in (len(lines) - 1, len(lines) // 2):
        start = sum(map(len, lines[:kept]))
        for cut in (start, start + 1, start + len(lines[kept]) - 2):
            file.write_bytes(whole[:cut])
            problems: list[Problem] = []
            acts = list(acts_of(file, problems))
            assert problems == []
            assert acts


def test_a_line_that_is_no_entry_is_a_mistake_wherever_it_is_not_torn(tmp_path: Path) -> None:
    """Only the last line, and only without its newline, is taken for a cut."""
    def mistakes(text: str) -> int:
        file = tmp_path / "r.jsonl"
        file.write_text(text)
        problems: list[Problem] = []
        list(acts_of(file, problems))
        return len(problems)

    assert mistakes('{"at": 1}\n{"at": 2, "kms') == 0
    assert mistakes('{"at": 1}\n{"at": 2, "kms\n') == 1
    assert mistakes('{"at": 1, "kms\n{"at": 2}') == 1
    assert mistakes('{"at": 1, "kms') == 1


@pytest.mark.slow
def test_a_recording_ends_at_its_limit(node: Node, tmp_path: Path) -> None:
    """The file stays below it and is whole; the agent goes on, and says so once."""
    file = tmp_path / "night.jsonl"
    said: list[str] = []
    with node.agent(Recorder(file, limit=1024, note=said.append)) as heard:
        node.breaks("ecc", 0)
        heard.wait_for("opened", "gpu-xid-uncontained-ecc")
    assert len(said) == 1
    assert "limit of 1024 bytes" in said[0]
    assert 0 < file.stat().st_size <= 1024
    played(file)


def test_a_recording_that_is_there_is_kept(tmp_path: Path) -> None:
    """An agent that crashed and was started again must not overwrite what led to it."""
    file = tmp_path / "night.jsonl"
    file.write_text("what happened\n")
    Recorder(file).close()
    assert (tmp_path / "night.jsonl.old").read_text() == "what happened\n"


@pytest.mark.parametrize("name", ["night.yaml", "nowhere/night.jsonl"])
def test_a_file_that_cannot_be_a_recording_is_a_users_mistake(tmp_path: Path, name: str) -> None:
    """Said at once, not when the first entry comes."""
    with pytest.raises(UserError, match="record"):
        Recorder(tmp_path / name)


