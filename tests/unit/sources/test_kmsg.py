"""The live reader of the kernel log: resuming, reconnecting, and saying what it can see."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeguard.model.clock import FakeClock, SystemClock
from nodeguard.model.device import NODE
from nodeguard.model.errors import SourceError
from nodeguard.model.sample import Batch, Event, SourceState, Told
from nodeguard.sources.kmsg import KmsgSource
from nodeguard.sources.kmsg_device import FakeKmsgDevice, FileKmsgDevice, Step

DEADLINE = 10.0  # seconds; reached only by a failure
CLOSED = SourceError("/dev/kmsg was closed by its writer")


class FaultLines:
    """Takes every line that holds FAULT."""

    def feed(self, text: str, stamp: float | None) -> Told | None:
        return Told(events=(Event("gpu_xid", NODE, text=text),)) if "FAULT" in text else None

    def state(self) -> dict[str, object]:
        return {}

    def restore(self, state: Mapping[str, object]) -> None:
        pass


class Collected:
    """Keeps Batches and lets a test wait for what it looks for."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self._changed = threading.Condition()

    def __call__(self, batch: Batch) -> None:
        with self._changed:
            self.batches.append(batch)
            self._changed.notify_all()

    def wait_for(self, seen: Callable[["Collected"], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: seen(self), DEADLINE), self.batches

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches
                for told in (Told(events=batch.events), *batch.then) for event in told.events
                if event.signal == "gpu_xid"]

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.events]

    @property
    def states(self) -> list[SourceState]:
        return [fact for batch in self.batches for fact in batch.facts if isinstance(fact, SourceState)]

    def count(self, name: str) -> int:
        return sum(batch.counts.get(name, 0) for batch in self.batches)


def record(sequence: int, text: str = "something else") -> bytes:
    return f"4,{sequence},{sequence * 1000},-;{text}\n".encode()


def follow(sessions: Sequence[Sequence[Step] | SourceError], *, clock: FakeClock | None = None,
           state: Mapping[str, object] | None = None) -> tuple[Collected, KmsgSource]:
    """Run the reader over a script until nothing more waits in its last session."""
    stop, collected = threading.Event(), Collected()
    device = FakeKmsgDevice(sessions, when_idle=stop.set)
    source = KmsgSource(device, [FaultLines()], clock or FakeClock(), suspended=lambda: 500.0)
    if state is not None:
        source.restore(state)
    source.run(collected, stop)
    return collected, source


@contextmanager
def following(source: KmsgSource, emit: Callable[[Batch], None]) -> Iterator[None]:
    """Run the reader in a thread of its own and end it."""
    stop = threading.Event()
    thread = threading.Thread(target=source.run, args=(emit, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        source.wake()
        thread.join(DEADLINE)
        assert not thread.is_alive()


def is_caught_up(collected: Collected) -> bool:
    return any(state.up and state.caught_up for state in collected.states)


def test_flood_overrun_close_and_reopening() -> None:
    """C04: goes on after EPIPE, tells the exact loss, reopens, and tells no record twice."""
    collected, _ = follow([
        [*(record(number) for number in range(5000, 5004)), BrokenPipeError(), record(71234, "FAULT 79"), CLOSED],
        [*(record(number, "FAULT 79" if number == 71234 else "x") for number in range(70000, 71235)),
         record(71235, "FAULT 31")],
    ])
    assert [(event.text, event.key) for event in collected.events] == [("FAULT 79", "71234"), ("FAULT 31", "71235")]
    assert collected.count("kmsg_lost_total") == 66230
    assert collected.count("kmsg_records_total") == 6
    assert collected.count("kmsg_duplicate_total") == 1235
    assert [(state.up, state.caught_up) for state in collected.states] == [
        (True, False), (False, False), (True, False), (True, True)]
    assert collected.states[1].reason == str(CLOSED)


def test_what_was_read_before_the_close_is_told_before_it() -> None:
    """The last words of a device that went."""
    collected, _ = follow([[record(1, "FAULT a"), CLOSED], []])
    kinds = ["event" if batch.events else "down" for batch in collected.batches
             if batch.events or any(isinstance(fact, SourceState) and not fact.up for fact in batch.facts)]
    assert kinds == ["event", "down"]


def test_reopening_backs_off_and_starts_anew_after_a_good_record() -> None:
    """0.1 s doubling to 30 s while it fails; the first new record resets it, old ones do not."""
    clock = FakeClock(boot=1000.0)
    follow([*[CLOSED] * 10, []], clock=clock)
    assert clock.boot() == pytest.approx(1000.0 + sum(0.1 * 2 ** n for n in range(9)) + 30.0)
    clock = FakeClock(boot=1000.0)
    follow([*[CLOSED] * 10, [record(1), CLOSED], [record(1), CLOSED], []], clock=clock)
    assert clock.boot() == pytest.approx(1000.0 + sum(0.1 * 2 ** n for n in range(9)) + 30.0 + 0.1 + 0.2)


def test_a_restart_reads_on_from_the_cursor() -> None:
    """C17c: what the predecessor told is skipped, what came between is told."""
    ring = [record(899, "FAULT old"), record(900, "FAULT old"), record(901, "FAULT new")]
    collected, _ = follow([ring], state={"cursor": 900})
    assert collected.texts == ["FAULT new"]


def test_a_first_start_reads_the_whole_boot() -> None:
    """C17a: lines from before the agent's start are told, dated by printk's clock and the time suspended."""
    collected, _ = follow([[record(33300, "FAULT 79"), record(33400, "FAULT 154")]])
    assert [event.at for event in collected.events] == [pytest.approx(533.3), pytest.approx(533.4)]


def test_an_event_is_never_in_the_future() -> None:
    """A stamp ahead of the clock is now."""
    collected, _ = follow([[record(900_000, "FAULT a")]])
    assert [event.at for event in collected.events] == [1000.0]


def test_a_fresh_record_happened_now() -> None:
    """Once caught up, drift between printk's clock and the others is measured and taken out."""
    clock, stop, collected = FakeClock(boot=5000.0), threading.Event(), Collected()

    def idle() -> None:
        if collected.events:
            stop.set()
        clock.advance(10.0)
        device.push(record(4_000_000, "FAULT a"), record(4_000_500, "FAULT b"))

    device = FakeKmsgDevice([[record(1)]], when_idle=idle)
    KmsgSource(device, [FaultLines()], clock, suspended=lambda: 0.0).run(collected, stop)
    assert [(event.stamp, event.at) for event in collected.events] == [(4000.0, 5010.0), (4000.5, 5010.0)]


def test_another_kernels_log_is_read_from_its_start() -> None:
    """A cursor beyond the newest record belongs elsewhere: nothing of this log is skipped for it."""
    ring = [record(1, "FAULT a"), record(2)]
    collected, _ = follow([ring, ring], state={"cursor": 900})
    assert collected.texts == ["FAULT a"]


def test_counts_are_told_without_events() -> None:
    """Foreign records are counted although nothing else is to be said."""
    collected, _ = follow([[record(1), b"garbage", record(2)]])
    assert (collected.count("kmsg_records_total"), collected.count("kmsg_malformed_total")) == (2, 1)
    assert collected.events == []


def test_state_never_runs_ahead_of_the_engine() -> None:
    """The stored cursor is that of the last Batch the engine took."""
    collected, source = follow([[record(1), CLOSED], [record(1), record(2, "FAULT a"), CLOSED], []])
    assert source.state()["cursor"] is None
    source.settle(collected.batches[1])  # up, down, …
    assert source.state()["cursor"] == 1
    source.settle(collected.batches[-1])
    assert source.state()["cursor"] == 2
    source.settle(collected.batches[0])
    assert source.state()["cursor"] == 2


def test_the_test_switch_is_loud() -> None:
    """Believing every facility is said at each start."""
    stop, said = threading.Event(), list[str]()
    device = FakeKmsgDevice([[]], when_idle=stop.set)
    KmsgSource(device, [], FakeClock(), any_facility=True, warn=said.append).run(Collected(), stop)
    assert len(said) == 1
    assert "forge" in said[0]


def test_a_blocked_reader_wakes_for_records_and_for_stop() -> None:
    """Nothing is polled: a push wakes it, and so does the end."""
    device, collected = FakeKmsgDevice([[]]), Collected()
    with following(KmsgSource(device, [FaultLines()], FakeClock()), collected):
        assert device.idle.wait(DEADLINE)
        device.push(record(1, "FAULT a"))
        collected.wait_for(lambda seen: seen.texts == ["FAULT a"])


def test_a_pipe_in_place_of_the_device(tmp_path: Path) -> None:
    """Several records a read, cut anywhere; without a writer it is quiet, after its last writer it is closed."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    collected = Collected()
    with following(KmsgSource(FileKmsgDevice(path), [FaultLines()], SystemClock()), collected):
        collected.wait_for(is_caught_up)
        with path.open("wb", buffering=0) as pipe:
            pipe.write(record(1, "FAULT a") + b" SUBSYSTEM=pci\n" + record(2)[:7])
            collected.wait_for(lambda seen: seen.texts == ["FAULT a"])
            pipe.write(record(2)[7:] + record(3, "FAULT b"))
            collected.wait_for(lambda seen: seen.texts == ["FAULT a", "FAULT b"])
        collected.wait_for(lambda seen: not all(state.up for state in seen.states))
        with path.open("wb", buffering=0) as pipe:
            pipe.write(record(4, "FAULT c").rstrip())
        collected.wait_for(lambda seen: seen.texts == ["FAULT a", "FAULT b", "FAULT c"])
    assert collected.count("kmsg_malformed_total") == 0


def test_a_growing_file_in_place_of_the_device(tmp_path: Path) -> None:
    """A regular file is read from its start and followed as it grows."""
    path, collected = tmp_path / "kmsg", Collected()
    path.write_bytes(record(1, "FAULT a"))
    with following(KmsgSource(FileKmsgDevice(path), [FaultLines()], SystemClock()), collected):
        collected.wait_for(is_caught_up)
        with path.open("ab", buffering=0) as file:
            file.write(record(2, "FAULT b"))
        collected.wait_for(lambda seen: seen.texts == ["FAULT a", "FAULT b"])


def test_a_device_that_is_not_there_is_looked_for_again(tmp_path: Path) -> None:
    """Down with a sentence, then up when it comes."""
    path, collected = tmp_path / "kmsg", Collected()
    with following(KmsgSource(FileKmsgDevice(path), [FaultLines()], SystemClock()), collected):
        collected.wait_for(lambda seen: bool(seen.states))
        assert collected.states[0] == SourceState(up=False, caught_up=False, reason=(
            f"{path} cannot be opened: No such file or directory"))
        path.write_bytes(record(1, "FAULT a"))
        collected.wait_for(lambda seen: seen.texts == ["FAULT a"])


PRINTK_DEVKMSG = Path("/proc/sys/kernel/printk_devkmsg")


@contextmanager
def unlimited_writes() -> Iterator[None]:
    """Without it the kernel takes 10 lines in 5 s from each writer (kernel.printk_devkmsg)."""
    before = PRINTK_DEVKMSG.read_text(encoding="ascii")
    PRINTK_DEVKMSG.write_text("on\n", encoding="ascii")
    try:
        yield
    finally:
        PRINTK_DEVKMSG.write_text(before, encoding="ascii")


@pytest.mark.kmsg
def test_the_real_kernel_log() -> None:
    """200 lines written to /dev/kmsg arrive once each, in order, under their own sequence numbers."""
    device = Path("/dev/kmsg")
    if not (os.access(device, os.R_OK | os.W_OK) and os.access(PRINTK_DEVKMSG, os.W_OK)):
        pytest.skip("/dev/kmsg or kernel.printk_devkmsg is not writable here")
    collected, mark = Collected(), f"FAULT {os.getpid()} "
    source = KmsgSource(FileKmsgDevice(device), [FaultLines()], SystemClock(), any_facility=True)
    with unlimited_writes(), following(source, collected):
        collected.wait_for(is_caught_up)
        with device.open("wb", buffering=0) as kmsg:
            for number in range(200):
                kmsg.write(f"{mark}{number}\n".encode())
        collected.wait_for(lambda seen: f"{mark}199" in seen.texts)
    mine = [event for event in collected.events if event.text.startswith(mark)]
    assert [event.text for event in mine] == [f"{mark}{number}" for number in range(200)]
    keys = [int(event.key) for event in mine]
    assert keys == sorted(set(keys))
    assert collected.count("kmsg_malformed_total") == 0
