"""What is written is read again as it was told, whatever it was."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.app.readers import readers
from nodeguard.model.device import NODE, Device, gpu
from nodeguard.model.errors import Problem  # noqa: TC001 # as the other tests import it
from nodeguard.model.sample import (
    Affinity,
    Batch,
    Booted,
    Event,
    Expected,
    Fact,
    Gap,
    Identified,
    KindsHere,
    Missed,
    NodeIs,
    PersonCleared,
    PodRef,
    Pods,
    Present,
    Renamed,
    Repaired,
    Sample,
    SourceState,
    Stalled,
    Told,
)
from nodeguard.model.signals import SIGNALS
from nodeguard.sources.recording import told
from nodeguard.sources.recording.reader import Entry, Recording
from nodeguard.sources.recording.writer import NOTHING, Raw, Writer
from nodeguard.vendors.nvidia.nvml_events import told_of

EVENTS = sorted(name for name, row in SIGNALS.items() if row.kind == "event")
READINGS = sorted(name for name, row in SIGNALS.items() if row.kind != "event")
DEVICES = st.sampled_from([NODE, gpu("GPU-a"), gpu("GPU-b"), Device("rdma_port/mlx5_0/1"), Device("pcie/0000:3b:00.0")])
GROUPS = st.frozensets(DEVICES, max_size=3)
WORDS = st.text(max_size=8)
SECONDS = st.floats(0, 1e9)
VALUES = st.one_of(st.none(), st.integers(0, 2**64), st.floats(allow_nan=False, allow_infinity=False), WORDS)
PODS = st.lists(st.builds(PodRef, WORDS, WORDS, WORDS), max_size=2).map(tuple)
FACTS: st.SearchStrategy[Fact] = st.one_of(
    st.builds(Identified, WORDS, DEVICES), st.builds(Present, st.sampled_from(["gpu", "rdma_port"]), GROUPS),
    st.builds(Missed, st.none() | GROUPS), st.builds(SourceState, st.booleans(), st.booleans(), WORDS, st.booleans()),
    st.builds(Stalled, DEVICES, st.none() | SECONDS), st.builds(Gap, st.integers(0, 9)),
    st.builds(Repaired, DEVICES, st.just("reset_gpu")), st.builds(Pods, st.dictionaries(DEVICES, PODS), GROUPS),
    st.builds(Affinity, st.dictionaries(DEVICES, st.lists(DEVICES, max_size=2).map(tuple))),
    st.builds(PersonCleared, WORDS, st.none() | DEVICES, SECONDS),
    st.builds(Expected, GROUPS, st.dictionaries(WORDS, st.integers(0, 9))), st.builds(NodeIs, WORDS, WORDS),
    st.builds(Booted, WORDS, st.none() | SECONDS), st.builds(Renamed, DEVICES, DEVICES),
    st.builds(KindsHere, st.frozensets(WORDS)))
LABELS = st.dictionaries(WORDS, WORDS, max_size=2).map(lambda labels: tuple(sorted(labels.items())))
SAMPLES = st.builds(Sample, st.sampled_from(READINGS), DEVICES, VALUES, LABELS)
ATTRIBUTES = st.dictionaries(WORDS, st.one_of(WORDS, st.booleans(), st.integers(0, 999)), max_size=2)
NEWS = st.builds(Event, st.sampled_from(EVENTS), DEVICES, ATTRIBUTES, st.none() | SECONDS, WORDS, st.none() | SECONDS,
                 WORDS)
PARTS = st.builds(Told, *(st.lists(some, max_size=3).map(tuple) for some in (SAMPLES, NEWS, FACTS)))
BATCHES = st.builds(
    lambda source, part, then, complete: Batch(source=source, samples=part.samples, events=part.events,
                                               facts=part.facts, then=tuple(then), complete=complete),
    st.sampled_from(["nvml", "nvml_events", "kmsg", "rdma", "host", "agent", "exporter/dcgm"]), PARTS,
    st.lists(PARTS, max_size=1), st.booleans())
LINES = st.one_of(st.binary(max_size=40), st.builds(
    lambda number, text: f"4,{number},{number}000,-;{text}\n".encode(), st.integers(0, 30),
    st.sampled_from(["NVRM: Xid (PCI:0000:3b:00): 95, x", "NVRM: GPU at PCI:0000:3b:00: GPU-a", "usb 1-1: new", ""])))
RAWS = st.builds(lambda lines, overruns: Raw(lines=tuple(lines), overruns=overruns),
                 st.lists(LINES, max_size=3), st.integers(0, 1))


def read(lines: list[str]) -> list[Batch]:
    """The batches that tell something."""
    problems: list[Problem] = []
    entries = [Entry(number, 1, json.loads(line)) for number, line in enumerate(lines, 1)]
    acts = list(Recording("r.jsonl", problems, readers()).acts(entries))
    assert problems == []
    told_ones = [act.what for act in acts if isinstance(act.what, Batch)]
    return [batch for batch in told_ones if batch.samples or batch.events or batch.facts or batch.then
            or batch.complete]


@given(st.lists(st.tuples(BATCHES, st.one_of(st.just(NOTHING), RAWS)), max_size=4))
def test_any_batches_are_read_as_they_were_told(steps: list[tuple[Batch, Raw]]) -> None:
    """In order, from whichever source, with whatever had been read before: nothing is added and nothing is lost."""
    lines: list[str] = []
    writer = Writer(readers(), lines.append)
    for number, (batch, raw) in enumerate(steps):
        writer.batch(float(number), batch, raw if batch.source == "kmsg" else NOTHING)
    wanted = [batch for batch, _ in steps if batch.samples or batch.events or batch.facts or batch.then
              or batch.complete]
    assert [dataclasses.replace(one, counts={}) for one in read(lines)] == wanted


def _poll(*readings: Sample, events: tuple[Event, ...] = (), facts: tuple[Fact, ...] = ()) -> Batch:
    present = Present("gpu", frozenset({gpu("GPU-a"), gpu("GPU-b")}))
    return Batch(source="nvml", samples=readings, events=events, facts=(*facts, present))


def _heat(device: Device, celsius: int) -> Sample:
    return Sample("gpu_temperature_celsius", device, celsius)


A, B = gpu("GPU-a"), gpu("GPU-b")
RAW_ONES = {
    "a healthy poll": [_poll(_heat(B, 41), _heat(A, 40), Sample("nvlink_state", A, "active", (("link", "0"),)))],
    "a listing": [_poll(Sample("gpu_count", NODE, 2), facts=(Identified("0000:3b:00.0", A),))],
    "lost, and lost again": [
        _poll(_heat(A, 40), facts=(Missed(frozenset({B})),), events=(Event("gpu_lost", B, {"cause": "nvml"}),)),
        _poll(_heat(A, 40), facts=(Missed(frozenset({B})),))],
    "a hang and its end": [
        _poll(_heat(A, 40), facts=(Stalled(B, 3.5), Missed(frozenset({B})))),
        _poll(_heat(A, 40), facts=(Missed(frozenset({B})),)),
        _poll(_heat(B, 40), facts=(Stalled(B, None),)),
        _poll(Sample("source_stalled_seconds", B, 0, (("source", "nvml"),)), _heat(B, 40))],
    "an NVML event": [Batch(source="nvml_events", events=told_of("GPU-a", 8, 94, 3, 0xFFFFFFFF).events)],
    "pods": [Batch(source="agent", facts=(Pods({A: (PodRef("u", "ns", "n"),)}, frozenset({A, B})),))],
}


@pytest.mark.parametrize("name", RAW_ONES)
def test_what_sources_commonly_read_is_written_in_their_own_words(name: str) -> None:
    """So that a person can read it, and change it, and judge again."""
    lines: list[str] = []
    writer = Writer(readers(), lines.append)
    writer.batch(0.0, Batch(source="nvml", facts=(SourceState(up=True),)))
    for number, batch in enumerate(RAW_ONES[name], 1):
        writer.batch(float(number), batch)
    assert [line for line in lines[1:] if "told" in json.loads(line)] == []
    assert read(lines)[1:] == RAW_ONES[name]


def test_every_fact_can_be_told() -> None:
    """A field of a type that the decoder does not know would be lost."""
    assert list(told.unreadable_fields()) == []


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ([], "expected a mapping, not a list"),
        ({"source": 1}, "expected text, not a number"),
        ({"source": "nvml", "sample": []}, "unknown key 'sample' (did you mean 'samples'?)"),
        ({"source": "nvml", "samples": [["gpu_xid", "node", 1]]}, "gpu_xid is an event and has no samples"),
        ({"source": "nvml", "samples": [["gpu_heat", "node", 1]]}, "no signal is called 'gpu_heat'"),
        ({"source": "nvml", "samples": [["gpu_count", "moon", 1]]}, "'moon' is no device"),
        ({"source": "nvml", "samples": [["gpu_count", "node", 10**400]]}, "expected seconds"),
        ({"source": "nvml", "samples": [["gpu_count", "node"]]}, "a sample is [signal, device, value]"),
        ({"source": "nvml", "events": [{"signal": "gpu_count", "device": "node"}]}, "gpu_count is no event"),
        ({"source": "nvml", "facts": [{"gap": {}}]}, "gap needs lost"),
        ({"source": "nvml", "facts": [{"gap": {"lost": 1, "found": 2}}]}, "unknown key 'found' in gap"),
        ({"source": "nvml", "facts": [{"gaps": {"lost": 1}}]}, "a fact is one of"),
    ],
)
def test_what_is_told_wrongly_is_named(entry: object, words: str) -> None:
    """One sentence; the rest of the recording goes on."""
    problems: list[Problem] = []
    entries = [Entry(1, 1, {"at": 1, "told": entry}), Entry(2, 1, {"at": 2, "kmsg": "x"})]
    acts = list(Recording("r.jsonl", problems, readers()).acts(entries))
    assert len(problems) == 1
    assert words in problems[0].message
    assert acts[-1].at == 2
