"""One timeline of RDMA ports, played as a recording and on files that the live source reads."""

import errno
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nodeguard.app.readers import kernel_line_parsers
from nodeguard.app.replay import fault_row, transition_row
from nodeguard.engine.engine import Engine
from nodeguard.model.device import Device
from nodeguard.model.sample import Batch, Booted, Expected
from nodeguard.sim import rdma
from nodeguard.sources.kmsg_records import KernelLog
from nodeguard.sources.polled import Sight
from nodeguard.sources.rdma import RdmaPoll
from nodeguard.sources.rdma_expected import expected_samples
from nodeguard.sources.tree import DirectoryTree

from .rig import Played, shipped

Step = tuple[float, rdma.Patch | str]
"""When, and what happens: a patch of the tree with one poll, or a line of the kernel log."""


def seconds(begin: int, end: int) -> list[Step]:
    """A poll every second that finds nothing new."""
    return [(at, {}) for at in range(begin, end)]


class FaultyTree:
    """A directory in which single files answer with an error; counts what is asked."""

    def __init__(self, root: Path) -> None:
        self._tree = DirectoryTree(root)
        self.broken: dict[str, int] = {}
        self.asked: list[str] = []

    def read(self, path: str) -> str:
        self._ask(path)
        return self._tree.read(path)

    def names(self, path: str) -> tuple[str, ...]:
        self._ask(path)
        return self._tree.names(path)

    def link(self, path: str) -> str:
        self._ask(path)
        return self._tree.link(path)

    def exists(self, path: str) -> bool:
        self.asked.append(path)
        return self._tree.exists(path)

    def _ask(self, path: str) -> None:
        self.asked.append(path)
        if path in self.broken:
            raise OSError(self.broken[path], "broken", path)

    def asked_below(self, hca: str) -> list[str]:
        return [path for path in self.asked if path.startswith(f"class/infiniband/{hca}/")]


class Live:
    """The live source on files, and an engine with the shipped rules."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.tree = FaultyTree(root)
        self._settings = settings
        self.engine = Engine(shipped())
        self.rows: list[dict[str, Any]] = []
        self._log = KernelLog(kernel_line_parsers())
        self.restart_source()
        self.take(0, Batch(source="agent", facts=(Booted("b1"),)))

    def restart_source(self) -> None:
        self.poll = RdmaPoll(self.tree, **self._settings)
        self._sight = Sight()

    def take(self, at: float, batch: Batch | None) -> None:
        if batch is not None:
            self.rows += [transition_row(one) for one in self.engine.step(at, batch)]

    def expect(self, rates: Mapping[Device, float | None]) -> None:
        self.take(0, Batch(source="agent", facts=(Expected(frozenset(rates)),), samples=tuple(expected_samples(rates))))

    def step(self, at: float, what: rdma.Patch | str = "") -> None:
        if isinstance(what, str) and what:
            self.take(at, self._log.feed([self._log.with_header(what, at)]))
            return
        patch = dict(what) if what else {}
        for path, value in patch.items():
            if isinstance(value, Mapping) and "error" in value:
                self.tree.broken[path] = getattr(errno, value["error"])
            else:
                self.tree.broken.pop(path, None)
        rdma.apply(self.root, {path: value for path, value in patch.items() if path not in self.tree.broken})
        for path in self.tree.broken:
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).touch()
        self.take(at, self._sight.of(self.poll.poll(at)))

    def play(self, steps: Iterable[Step]) -> "Live":
        for at, what in steps:
            self.step(at, what)
        return self

    @property
    def told(self) -> list[str]:
        return [f"{row['at']:g} {row['transition']} {row['rule']} {row['device']}" for row in self.rows]

    @property
    def faults(self) -> list[dict[str, Any]]:
        return [fault_row(fault) for fault in self.engine.open_faults()]

    @property
    def open(self) -> list[str]:
        return sorted(f"{fault['rule']} {fault['device']}" for fault in self.faults)

    def fault(self, rule: str) -> dict[str, Any]:
        (found,) = [fault for fault in self.faults if fault["rule"] == rule]
        return found


def replay(steps: Sequence[Step], *, expect: Mapping[str, Any] | None = None) -> Played:
    """The same timeline as a recording."""
    node = {"name": "n", "uid": "u", "boot_id": "b1", "expect": {"rdma": expect or {}}}
    entries: list[dict[str, Any]] = [{"at": 0, "node": node}]
    entries += [{"at": at, "kmsg": what} if isinstance(what, str) else {"at": at, "sysfs": what} for at, what in steps]
    played = Played(entries)
    assert played.errors == []
    return played


def both(tmp_path: Path, steps: Sequence[Step]) -> tuple[Played, Live]:
    """The timeline played both ways."""
    return replay(steps), Live(tmp_path).play(steps)
