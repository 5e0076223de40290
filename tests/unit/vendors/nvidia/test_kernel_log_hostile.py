"""The NVIDIA kernel log parser against text that others chose: names, programs, broken lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.vendors.nvidia.kernel_log import NvidiaKernelLog

from .lines import GONE, GONE_END, GONE_MIDDLE, only, tell


@pytest.mark.parametrize("line", [
    "ncat[1749]: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "audit: comm=x NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "Feb 14 05:03:41 hostx sshd[3]: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "Feb 14 05:03:41 hostx sshd[3]: kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
])
def test_only_a_journal_prefix_may_come_before_the_driver(line: str) -> None:
    """A program's name in front of the driver's words makes the line foreign."""
    assert tell(line) == []


@pytest.mark.parametrize("line", [
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=777, name=x\nNVRM: Xid: 79, Ch 00000008, intr 00000000. MMU Fault",
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=777, name=fallen off\nNVRM: fallen off the bus, MMU Fault",
])
def test_a_line_break_in_a_process_name_begins_no_message(line: str) -> None:
    """A message begins where its record begins."""
    assert only(line).attributes["code"] == 31


def test_a_line_break_in_a_process_name_hides_no_words() -> None:
    """The driver's words are read from the end of the record, whatever came between."""
    line = ("NVRM: Xid (PCI:0000:3b:00): 63, pid=7, name=a\nb, Row Remapper: New row marked for "
            "remapping, reset gpu to activate.")
    assert only(line).attributes["resolution"] == "remap_pending"


SEEDS = [
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=777, name=x): 79, GPU, Ch 00000008, intr 00000000. MMU Fault",
    "Feb 14 05:03:41 hostx kernel: NVRM: Xid (PCI:0000:9b:00): 119, pid=20, name=nvidia-smi, Timeout after 6s",
    "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818, name=python3, Ch 00000001 caused by previous Xid 149",
    GONE, GONE_MIDDLE, GONE_END, f"{GONE}\n{GONE_MIDDLE}\n{GONE_END}",
    "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:02): 95, pid=1, name=a, Uncontained: LTC TAG (0x2). RST: Yes, D-RST: No",
    "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    "NVRM: Xid (PCI:0003:00:00): 74, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
    "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)",
    "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    "NVRM: GPU at PCI:0000:9b:00: GPU-12345678-aaaa", "NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x62)",
]
PIECES = st.sampled_from(
    ["(", ")", "0x", ",", ":", "\n", "79", " ", "NVRM:", "Xid", "GPU-I:", "\N{ARABIC-INDIC DIGIT THREE}", "\0",
     "9" * 40])


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A real line with a few pieces cut out and others put in."""
    line = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(0, 4))):
        start, length = draw(st.integers(0, len(line))), draw(st.integers(0, 5))
        line = line[:start] + draw(PIECES | st.text(max_size=3)) + line[start + length:]
    return line


@given(st.lists(st.tuples(mutated() | st.text(), st.none() | st.floats(allow_nan=False)), max_size=6))
def test_no_text_raises(records: list[tuple[str, float | None]]) -> None:
    """Whatever the log holds, the parser answers, and its state is JSON that a successor takes."""
    parser = NvidiaKernelLog()
    for text, stamp in records:
        told = parser.feed(text, stamp)
        for event in told.events if told else ():
            assert len(event.text) <= 300
            assert event.stamp == stamp
        successor = NvidiaKernelLog()
        successor.restore(json.loads(json.dumps(parser.state())))
        assert successor.state() == parser.state()


@given(code=st.integers(1, 300), name=st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=15))
def test_a_process_name_is_never_read_as_a_number(code: int, name: str) -> None:
    """Fifteen characters of the user's choice do not change the number, nor make a state or a lost GPU."""
    (told,) = tell(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=7, name={name}, Ch 00000008")
    assert told.events[0].attributes["code"] == code
    assert told.samples == ()
    assert (len(told.events) == 2) is (code == 79)
