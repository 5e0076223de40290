"""Framing, trust, losses and identity of kernel log records."""

import json
from collections.abc import Sequence

from nodeguard.model.device import NODE
from nodeguard.model.sample import Event, Gap
from nodeguard.sources.kmsg_records import KernelLog
from nodeguard.vendors.nvidia.kernel_log import NvidiaKernelLog

from .kernel_lines import FaultLines, read, record, summed


def texts(events: Sequence[Event]) -> list[str]:
    return [event.text for event in events]


def codes(events: Sequence[Event]) -> list[object]:
    return [event.attributes["code"] for event in events if event.signal == "gpu_xid"]


C01 = [
    b"4,88123,512000111,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=python3, Ch 00000008, MMU Fault: GRAPHICS\n",
    b"11,88124,512000222,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n",
    b"30,88125,512000333,-;ncat[1749]: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n",
    b"12,88126,512000444,-;NVRM: Xid (PCI:0000:5e:00): 95, Uncontained\n",
]


def test_only_the_kernel_is_believed() -> None:
    """C01: records of other facilities are no evidence, and those that try to be are counted."""
    events, counts, _ = read(KernelLog([NvidiaKernelLog()]), C01)
    assert codes(events) == [31]
    assert counts == {"kmsg_records_total": 4, "kmsg_untrusted_total": 3}


def test_the_test_switch_believes_everybody() -> None:
    """With any_facility the forged records are evidence, but for one behind a program's own words."""
    events, counts, _ = read(KernelLog([NvidiaKernelLog()], any_facility=True), C01)
    assert codes(events) == [31, 79, 95]
    assert "kmsg_untrusted_total" not in counts


def test_untrusted_records_that_nobody_would_take_are_not_counted() -> None:
    """What services log is no attempt at anything."""
    _, counts, _ = read(KernelLog([FaultLines()]), [record(1, "udevd[80]: starting version 181", priority=30)])
    assert counts == {"kmsg_records_total": 1}


def test_untrusted_records_teach_the_parsers_nothing() -> None:
    """The parser that judges forged text is not the one that reads evidence."""
    log = KernelLog([FaultLines()])
    events, counts, _ = read(log, [record(1, "FAULT a!", priority=12), record(2, "FAULT b!")])
    assert codes(events) == [1]
    assert counts["kmsg_untrusted_total"] == 1


def test_several_lines_in_one_record_are_one_text() -> None:
    r"""C02: the kernel writes line breaks as \x0a; the parser gets them back."""
    raws = [
        rb"4,1502,1843308145,-;NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: 10de:26b5) installed in this system "
        rb"has\x0aNVRM: fallen off the bus and is not responding to commands." + b"\n",
    ]
    events, _, _ = read(KernelLog([NvidiaKernelLog()]), raws)
    assert [(event.signal, event.device, event.key) for event in events] == [("gpu_lost", "gpu/0000:b3:00.0", "1502")]


def test_framing() -> None:
    """C03: attributes are not text, unknown header fields are ignored, the first semicolon ends the header."""
    dbe = (
        b"4,700,90000000,-,caller=T4242;NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, An "
        b"uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x18f00000 "
        b"partition 16, subpartition 3."
    )
    contained = (
        b"4,703,90000030,-;NVRM: Xid (PCI:0000:3b:00): 94, pid='<unknown>', name=<unknown>, Contained: SM (0x1). "
        b"RST: No, D-RST: No"
    )
    raws = [
        dbe + b"\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n",
        b"6,701,90000010,-;pci 0000:3b:00.0: note; with; semicolons\n",
        b"garbage-without-semicolon\n",
        b"6,702,9000002x,-;bad timestamp\n",
        contained + b"\n",
    ]
    events, counts, lost = read(KernelLog([NvidiaKernelLog()]), raws)
    assert codes(events) == [48, 94]
    assert events[0].text.endswith("subpartition 3.")
    assert counts == {"kmsg_records_total": 4, "kmsg_malformed_total": 2}
    assert lost == 0


def test_text_keeps_its_semicolons_and_bytes() -> None:
    """Escapes are undone after framing; what is no UTF-8 is replaced, never raised."""
    raws = [record(1, "FAULT; a;b \\x5cx41 \\xc3\\xa9 \\xff!")]
    assert texts(read(KernelLog([FaultLines()]), raws)[0]) == ["FAULT; a;b \\x41 é \ufffd!"]


def test_a_record_is_dated_and_named_by_itself() -> None:
    """Stamp from its microseconds, key from its sequence number, engine time from the reader's function."""
    log = KernelLog([FaultLines()], engine_time=lambda stamp: stamp + 100)
    (event,), _, _ = read(log, [record(2500, "FAULT a!")])
    assert (event.stamp, event.at, event.key) == (2.5, 102.5, "2500")


def test_flood_overrun_and_reopening() -> None:
    """C04: the loss is exact, the record after it counts, and the same record is not told twice."""
    log = KernelLog([FaultLines()])
    first = [log.feed([record(number) for number in range(5000, 5004)])]
    log.overrun()
    after = log.feed([record(71234, "FAULT 79!")])
    assert after is not None
    assert after.facts == (Gap(66230),)
    gap, fault = after.events
    assert (gap.signal, gap.device, gap.attributes, gap.stamp) == ("kmsg_gap", NODE, {"lost": 66230}, 71.234)
    assert fault.key == "71234"
    log.reopened()
    again = log.feed([record(number, "FAULT 79!" if number == 71234 else "other") for number in range(70000, 71236)])
    assert again is None
    assert log.caught_up()
    _, counts, _ = summed([*first, after, again, log.drain()])
    assert counts == {"kmsg_records_total": 6, "kmsg_lost_total": 66230, "kmsg_duplicate_total": 1235,
                      "kmsg_overruns_total": 1}


def test_facts_and_events_keep_their_order_in_a_batch() -> None:
    """A gap between two events is told between them: the engine takes facts before events within one part."""
    batch = KernelLog([FaultLines()]).feed([record(1, "FAULT a!"), record(2, "FAULT b!"), record(5, "FAULT c!")])
    assert batch is not None
    assert (texts(batch.events), batch.facts) == (["FAULT a!", "FAULT b!"], ())
    (after,) = batch.then
    assert ([event.key for event in after.events], after.facts) == (["gap/5", "5"], (Gap(2),))


def test_first_sight_is_no_gap() -> None:
    """A log that begins at 5000 has lost nothing that this reader could have known."""
    assert read(KernelLog([FaultLines()]), [record(5000)])[2] == 0


def test_a_ring_that_moved_on_while_the_agent_was_away_is_a_gap() -> None:
    """A stored cursor and a ring that starts later."""
    log = KernelLog([FaultLines()])
    log.restore({"cursor": 900})
    assert read(log, [record(951)])[2] == 50


def test_a_read_without_number_fills_the_hole_it_left() -> None:
    """A record that cannot be read is malformed, not lost; only the rest of the hole is."""
    _, counts, lost = read(KernelLog([FaultLines()]), [record(10), b"?", record(12), b"?", record(20)])
    assert (counts["kmsg_records_total"], counts["kmsg_malformed_total"], lost) == (5, 2, 6)


def test_a_restart_after_a_read_without_number_keeps_the_sum() -> None:
    """The hole is known to the successor as malformed."""
    before, after = KernelLog([FaultLines()]), KernelLog([FaultLines()])
    read(before, [record(10), b"?"])
    after.restore(before.state())
    assert read(after, [record(12)])[1] == {"kmsg_records_total": 2}


def test_another_kernels_log_is_read_anew() -> None:
    """A ring that ends before the cursor cannot be the one that the cursor was in."""
    log = KernelLog([FaultLines()])
    log.restore({"cursor": 900})
    log.reopened()
    assert log.feed([record(7, "FAULT a!")]) is None
    assert not log.caught_up()
    log.reopened()
    assert texts(read(log, [record(7, "FAULT a!")])[0]) == ["FAULT a!"]
    assert log.caught_up()


def test_fragments_are_joined() -> None:
    """Today's kernels flag the later fragment, older ones the first with c and the later with +."""
    for first, later in (("-", "c"), ("c", "+"), ("c", "c"), ("c", "-")):
        raws = [record(1, "FAULT a", flag=first), record(2, "bc!", flag=later), record(3, "d!", flag="-")]
        events, _, _ = read(KernelLog([FaultLines()]), raws)
        assert [(event.text, event.key) for event in events] == [("FAULT abc!", "2")], (first, later)


def test_fragments_find_their_line_by_caller() -> None:
    """Records of others come between: that is why the kernel could not join them itself."""
    raws = [
        record(1, "FAULT a", more=",caller=T1"), record(2, "x", more=",caller=C2"),
        record(3, "b", flag="c", more=",caller=T1"), record(4, "y!", flag="c", more=",caller=C2"),
        record(5, "c!", flag="c", more=",caller=T1"),
    ]
    assert texts(read(KernelLog([FaultLines()]), raws)[0]) == ["FAULT abc!"]


def test_fragments_do_not_join_what_should_stay_apart() -> None:
    """Not with user space's text, not over a gap, and no whole line with the next."""
    for raws in (
        [record(1, "FAULT a", priority=12), record(2, "b!", flag="c")],
        [record(1, "FAULT a"), record(2, "b!", flag="c", priority=12)],
        [record(1, "FAULT a", flag="c"), record(3, "b!", flag="c")],
        [record(1, "FAULT a"), record(2, "b!")],
    ):
        assert [event for event in read(KernelLog([FaultLines()]), raws)[0] if event.signal != "kmsg_gap"] == []


def test_endless_fragments_take_no_memory() -> None:
    """A line that never ends is dropped at its limit."""
    log = KernelLog([FaultLines()])
    read(log, [record(number, "FAULT" + "x" * 900, flag="c", more=f",caller=T{number % 5}") for number in range(500)])
    assert len(json.dumps(log.state())) < 100_000


def test_a_flood_is_counted_line_by_line() -> None:
    """C15 at a hundredth: every one of 1,000 equal lines is an event with its own stamp and key."""
    line = "NVRM: Xid (PCI:0000:5e:00): 95, pid=7062, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"
    events, counts, _ = read(KernelLog([NvidiaKernelLog()]), [record(number, line) for number in range(1000)], 512)
    assert codes(events) == [95] * 1000
    assert len({(event.key, event.stamp) for event in events}) == 1000
    assert counts == {"kmsg_records_total": 1000}


def test_recorded_lines_get_the_next_header() -> None:
    """A recording's bare text is the kernel's next record; one with a header is as it was."""
    log = KernelLog([FaultLines()])
    assert log.with_header("4,88,512,-;NVRM: x", 3.0) == b"4,88,512,-;NVRM: x"
    assert log.with_header("first", 3.0) == b"4,0,3000000,-;first\n"
    log.feed([record(41)])
    raw = log.with_header("FAULT 1,2; é\ntwo \\x0a!\n", 2.5)
    assert raw == rb"4,42,2500000,-;FAULT 1,2; \xc3\xa9\x0atwo \x0a!" + b"\n"
    batch = log.feed([log.with_header("FAULT 1,2; é\ntwo!", 2.5)])
    assert batch is not None
    assert [(event.text, event.key, event.stamp) for event in batch.events] == [("FAULT 1,2; é\ntwo!", "42", 2.5)]


def test_state_of_another_form_is_left_out() -> None:
    """Whatever the store holds, reading starts."""
    for state in ({}, {"cursor": "9", "open": 3, "parsers": {}}, {"open": [[1], ["a", "b", 2], None], "parsers": [4]}):
        log = KernelLog([FaultLines()])
        log.restore(state)
        assert log.cursor is None
        assert codes(read(log, [record(3, "FAULT a!")])[0]) == [1]
