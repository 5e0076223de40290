"""What holds for kernel log reads of any content, grouping and interruption."""

import json
import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.sources.kmsg_records import KernelLog
from nodeguard.vendors.nvidia.kernel_log import NvidiaKernelLog

from .kernel_lines import FaultLines, read

RAWS = st.one_of(
    st.binary(max_size=30),
    st.builds(
        lambda step, text, priority, flag, usec: (step, text, priority, flag, usec),
        st.integers(-2, 5),
        st.sampled_from(["FAULT", "FAULT a!", "b!", "FAULT \\x0a\\x", "other"]),
        st.sampled_from(["4", "12", "x", ""]),
        st.sampled_from(["-", "c", "+", "-,caller=T1", "c,caller=T1", ""]),
        st.sampled_from(["17", "1x"]),
    ),
)


def raw_stream(parts: Sequence[bytes | tuple[int, str, str, str, str]]) -> list[bytes]:
    """Reads as a device could give them and worse: numbers mostly rise, some go back, some are missing."""
    number, raws = 1000, []
    for part in parts:
        if isinstance(part, bytes):
            raws.append(part.replace(b",", b"."))
            continue
        step, text, priority, flag, usec = part
        number += step
        raws.append(f"{priority},{number},{usec},{flag};{text}\n".encode())
    return raws


@given(st.lists(RAWS, max_size=40))
def test_read_and_lost_make_the_whole(parts: Sequence[bytes | tuple[int, str, str, str, str]]) -> None:
    """Whatever comes, nothing is raised and the two counts sum up to the numbers passed."""
    log = KernelLog([FaultLines()])
    raws = raw_stream(parts)
    _, counts, gaps = read(log, raws)
    assert counts["kmsg_lost_total"] == gaps
    numbers = [int(raw.split(b",")[1]) for raw in raws if raw.count(b",") >= 3]
    passed = log.cursor - numbers[0] + 1 if log.cursor is not None else 0
    assert counts["kmsg_records_total"] + gaps == passed


@given(st.lists(RAWS, max_size=40), st.integers(1, 9), st.integers(0, 40))
def test_batches_and_restarts_change_nothing(
    parts: Sequence[bytes | tuple[int, str, str, str, str]], size: int, restart: int,
) -> None:
    """The same events, however the reads are grouped and wherever the state moves to a new process."""
    raws = raw_stream(parts)
    expected = read(KernelLog([FaultLines()]), raws, 40)
    before, after = KernelLog([FaultLines()]), KernelLog([FaultLines()])
    events, counts, lost = read(before, raws[:restart], size)
    after.restore(json.loads(json.dumps(before.state())))
    more_events, more_counts, more_lost = read(after, raws[restart:], size)
    assert (events + more_events, counts + more_counts, lost + more_lost) == expected


@given(st.lists(st.binary(max_size=60), max_size=10), st.randoms())
def test_garbage_raises_nothing(raws: Sequence[bytes], chance: random.Random) -> None:
    """Not even garbage with a header in front."""
    headed = [b"4,%d,17,%s;" % (chance.randrange(30), chance.choice([b"-", b"c", b""])) + raw for raw in raws]
    read(KernelLog([NvidiaKernelLog()], any_facility=True), [*headed, *raws])
