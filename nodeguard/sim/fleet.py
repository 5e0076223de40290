"""Simulated nodes, each in a process of its own with the driver below pynvml and the real agent above it.

pynvml keeps one library a process, and a real node has one agent: so a node is a process. It is spawned, not forked,
because the caller has threads; it ends with the caller's end of its pipe, however that ends. What runs as the agent is
a parameter, because the layers below the command line do not know each other.
"""

import contextlib
import multiprocessing
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

from nodeguard.model.errors import NodeguardError
from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sim.node import SimulatedNode
from nodeguard.sim.scenarios import Deed

RunAgent = Callable[[Mapping[str, str], Path], contextlib.AbstractContextManager[None]]
"""Runs an agent with these settings against the API of this kubeconfig; its exit ends it. A function that spawned
processes can import by its name."""

_ANSWER_SECONDS = 30.0
"""A new process imports everything first; on a busy machine that takes seconds."""
_END_SECONDS = 5.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class _Hello:
    slots: tuple[str, ...]
    uuids: tuple[str, ...]
    boot_id: str


@dataclass(frozen=True, slots=True)
class _Rebooted:
    began: float
    boot_id: str


@dataclass(frozen=True, slots=True)
class _Failed:
    sentence: str


@dataclass(frozen=True, slots=True)
class _Start:
    run_agent: RunAgent
    kubeconfig: Path


@dataclass(frozen=True, slots=True)
class _Stop:
    """End the agent."""


@dataclass(frozen=True, slots=True)
class _Do:
    deed: Deed
    gpu: int


@dataclass(frozen=True, slots=True)
class _Reboot:
    deed: Deed
    gpu: int


_Order = _Start | _Stop | _Do | _Reboot


class FleetNode:
    """One simulated node, seen from outside its process."""

    def __init__(self, name: str, gpus: int, directory: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self._pipe, its_end = context.Pipe()
        self._process = context.Process(target=_live, args=(its_end, name, gpus, directory), name=name, daemon=True)
        self._process.start()
        its_end.close()
        self._hello: _Hello | None = None

    @property
    def slots(self) -> tuple[str, ...]:
        """PCI addresses of its GPUs."""
        return self._who().slots

    @property
    def uuids(self) -> tuple[str, ...]:
        """UUIDs of its GPUs."""
        return self._who().uuids

    @property
    def boot_id(self) -> str:
        """Of the boot that it runs under now."""
        return self._who().boot_id

    def do(self, deed: Deed, gpu: int) -> float:
        """Do something to one of its GPUs; the monotonic time (``time.monotonic``) at which that began."""
        self._who()
        self.tell(_Do(deed, gpu))
        began = self.answer()
        assert isinstance(began, float)  # noqa: S101 # the one answer to this order
        return began

    def reboot(self, deed: Deed, gpu: int) -> float:
        """End its agent, do what the reboot mends, and start the agent anew under another boot ID; when that began."""
        hello = self._who()
        self.tell(_Reboot(deed, gpu))
        answer = self.answer()
        assert isinstance(answer, _Rebooted)  # noqa: S101 # the one answer to this order
        self._hello = replace(hello, boot_id=answer.boot_id)
        return answer.began

    def tell(self, order: _Order) -> None:
        """Send an order; :meth:`answer` must follow. NodeguardError: the process has ended."""
        try:
            self._pipe.send(order)
        except OSError as error:
            raise self._gone() from error

    def answer(self) -> object:
        """The answer to the order that was sent last. NodeguardError: it failed, or none came in time."""
        try:
            if not self._pipe.poll(_ANSWER_SECONDS):
                raise NodeguardError(f"simulated node {self.name}: no answer within {_ANSWER_SECONDS:g} s")
            answer = self._pipe.recv()
        except (OSError, EOFError) as error:
            raise self._gone() from error
        if isinstance(answer, _Failed):
            raise NodeguardError(f"simulated node {self.name}: {answer.sentence}")
        return answer

    def hang_up(self) -> None:
        """Let the process end, its agent first."""
        self._pipe.close()

    def end(self, seconds: float) -> None:
        """Wait until the process is gone; kill it after so many seconds."""
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()

    def _who(self) -> _Hello:
        if self._hello is None:
            hello = self.answer()
            assert isinstance(hello, _Hello)  # noqa: S101 # its first word
            self._hello = hello
        return self._hello

    def _gone(self) -> NodeguardError:
        return NodeguardError(f"the process of simulated node {self.name} has ended; what it wrote is above")


class Fleet:
    """Simulated nodes by the names given, each of ``gpus`` GPUs. A context manager: leaving it ends every process.

    Their files lie below one directory, removed at the end even if a process was killed.
    """

    def __init__(self, names: Sequence[str], gpus: int = 8) -> None:
        self._names, self._gpus = tuple(names), gpus
        self._exit = contextlib.ExitStack()
        self.nodes: tuple[FleetNode, ...] = ()
        """In the order of their names, while the context is open."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            folder = tempfile.TemporaryDirectory(prefix="nodeguard-fleet-", ignore_cleanup_errors=True)
            directory = Path(stack.enter_context(folder))
            started: list[FleetNode] = []
            stack.callback(_end, started)
            for name in self._names:
                with _signals_wait():
                    started.append(FleetNode(name, self._gpus, directory))
            self.nodes = tuple(started)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._exit.__exit__(kind, error, trace)
        self.nodes = ()

    @contextlib.contextmanager
    def agents(self, run_agent: RunAgent, kubeconfig: Path) -> Iterator[None]:
        """Run an agent on every node, all at once, until the context ends. NodeguardError: one could not start."""
        try:
            self._all(_Start(run_agent, kubeconfig))
            yield
        finally:
            with contextlib.suppress(NodeguardError):  # a process that has ended runs no agent
                self._all(_Stop())

    def _all(self, order: _Order) -> None:
        for node in self.nodes:
            node.slots  # noqa: B018 # waits for its first word, so that answers stay in step with orders
            node.tell(order)
        for node in self.nodes:
            node.answer()


def _end(nodes: Sequence[FleetNode]) -> None:
    for node in nodes:
        node.hang_up()
    deadline = time.monotonic() + _END_SECONDS
    for node in nodes:
        node.end(max(0.1, deadline - time.monotonic()))


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the end, and a process started meanwhile never gets them.

    A terminal sends its signals to every process in front; the nodes are to end when their owner has, in order.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    resource_tracker.ensure_running()  # multiprocessing's helper: it would unblock the signals when it is started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _live(pipe: Connection, name: str, gpus: int, directory: Path) -> None:
    """What the process of one node does: it obeys until the other end of the pipe is closed."""
    with (SimulatedNode(name, gpus, directory=directory) as node, SimulatedDriver.at(node.slots, node.uuids) as driver,
          contextlib.ExitStack() as agents):
        node.attach(driver)
        life = _Life(node, driver, agents)
        with contextlib.suppress(EOFError, OSError):
            pipe.send(_Hello(node.slots, node.uuids, node.boot_id))
            while True:
                pipe.send(life.obey(pipe.recv()))
        driver.release_all()
        for gpu in driver.gpus:
            gpu.release_all()


class _Life:
    """What one node's process holds, and how it obeys."""

    def __init__(self, node: SimulatedNode, driver: SimulatedDriver, agents: contextlib.ExitStack) -> None:
        self._node, self._driver, self._agents = node, driver, agents
        self._started: _Start | None = None

    def obey(self, order: _Order) -> float | _Rebooted | _Failed | None:
        """Carry out one order; its answer."""
        began = time.monotonic()
        try:
            match order:
                case _Start():
                    self._started = order
                    self._start()
                case _Stop():
                    self._agents.close()
                case _Do(deed, gpu):
                    deed(self._node, self._driver, gpu)
                    return began
                case _Reboot(deed, gpu):
                    self._agents.close()
                    self._node.reboot()
                    deed(self._node, self._driver, gpu)
                    self._start()
                    return _Rebooted(began, self._node.boot_id)
        except NodeguardError as error:
            return _Failed(str(error))
        return None

    def _start(self) -> None:
        if self._started is not None:
            self._agents.enter_context(self._started.run_agent(self._node.settings, self._started.kubeconfig))
