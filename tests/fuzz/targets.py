"""The targets: each takes bytes and does with them what nodeguard does with its input.

A target fails by raising anything but the errors that its parser is documented to raise. ``seeds`` are inputs in the
parser's format; what the fuzzers make of them is theirs.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from nodeguard.app.person import CLEAR_ANNOTATION, QUIESCE_ANNOTATION, cleared, quiesced_until
from nodeguard.app.readers import kernel_line_parsers, readers, sysfs_polls
from nodeguard.app.replay import Player, open_recording
from nodeguard.config.mappings import load_mapping, mapping_names, shipped_mapping
from nodeguard.config.rules import load_rule_texts, load_rules
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.engine import memory
from nodeguard.engine.engine import Engine
from nodeguard.model.clock import FakeClock
from nodeguard.model.errors import ConfigError, Problem, SourceError, UserError
from nodeguard.model.rule import RuleSet
from nodeguard.model.sample import Batch
from nodeguard.sim import rdma
from nodeguard.sinks import annotation
from nodeguard.sources.exporter import ExporterPages
from nodeguard.sources.host import HostPoll, Machine
from nodeguard.sources.host_mounts import parse as parse_mounts
from nodeguard.sources.kmsg_device import Framer
from nodeguard.sources.kmsg_records import KernelLog
from nodeguard.sources.pods_cgroup import pod_uid
from nodeguard.sources.pods_checkpoint import allotted
from nodeguard.sources.recording.reader import Entry, Recording, entries_of_yaml
from nodeguard.sources.recording.tree import PROC, Below, RecordedTree
from tests.fuzz import seeds
from tests.fuzz.told import check, check_batch

_LINES_LIMIT = 200
"""Entries or lines of one input that are looked at: more of the same finds nothing more."""


@dataclass(frozen=True, slots=True)
class Target:
    """One parser."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def kmsg_records(data: bytes) -> None:
    """Framing, headers, sequence numbers, fragments; the memory can be stored and taken back."""
    framer = Framer()
    raws = [*framer.push(data), *framer.flush()][:_LINES_LIMIT]
    whole, halves = KernelLog(kernel_line_parsers()), KernelLog(kernel_line_parsers())
    check_batch(whole.feed(raws))
    halves.feed(raws[:len(raws) // 2])
    again = KernelLog(kernel_line_parsers())
    again.restore(json.loads(json.dumps(halves.state())))
    again.feed(raws[len(raws) // 2:])
    assert again.cursor == whole.cursor


def kernel_lines(data: bytes) -> None:
    """Lines of every driver whose lines are known, one after another as a parser remembers them."""
    parsers = kernel_line_parsers()
    for number, line in enumerate(_text(data).split("\n")[:_LINES_LIMIT]):
        for parser in parsers:
            check(parser.feed(line, float(number)))
    for parser, fresh in zip(parsers, kernel_line_parsers(), strict=True):
        fresh.restore(json.loads(json.dumps(parser.state())))


def exporter_page(data: bytes) -> None:
    """A page by every mapping, twice: the second time the lines are known."""
    for name in mapping_names():
        pages = ExporterPages(name, shipped_mapping(name))
        check_batch(pages.page(_text(data), 0.0))
        check_batch(pages.page(_text(data), 10.0))


def recording(data: bytes) -> None:
    """JSON Lines to acts; every mistake is a problem with its place."""
    problems: list[Problem] = []
    for act in Recording("r.jsonl", problems, readers()).acts(_entries(data)):
        check_batch(act.what if isinstance(act.what, Batch) else None)
    "\n".join(map(str, problems))


def recording_yaml(data: bytes) -> None:
    """The same from YAML."""
    problems: list[Problem] = []
    try:
        entries = list(entries_of_yaml(_text(data), "r.yaml", problems))[:_LINES_LIMIT]
        list(Recording("r.yaml", problems, readers()).acts(entries))
    except ConfigError:
        return


def replay(data: bytes) -> None:
    """A recording through the engine with the shipped rules, to the end that is printed."""
    problems: list[Problem] = []
    player = Player(_shipped())
    try:
        list(player.play(open_recording(_entries(data), "r.jsonl", problems)))
    except UserError:
        return
    json.dumps(player.final())
    json.dumps([memory.node_part(player.engine), memory.boot_part(player.engine)])


def rules_yaml(data: bytes) -> None:
    """A rule file, alone and as an override."""
    for texts in ([("r.yaml", _text(data))], [("shipped.yaml", seeds.RULES), ("r.yaml", _text(data))]):
        try:
            load_rule_texts(texts)
        except ConfigError as error:
            str(error)


def mapping_yaml(data: bytes) -> None:
    """An exporter mapping."""
    try:
        load_mapping(_text(data), "m.yaml")
    except ConfigError as error:
        str(error)


def node_annotations(data: bytes) -> None:
    """What people and agents write on a Node: words to clear and to quiesce, and the faults."""
    text = _text(data)
    cleared({CLEAR_ANNOTATION: text}, 0.0)
    quiesced_until({QUIESCE_ANNOTATION: text}, {})
    document = annotation.parse(text)
    annotation.types_of(document)
    rows = annotation.faults_of(document)
    if document is not None:
        engine = Engine(_few_rules())
        times = {str(row.get("since")): 1.0 for row in rows}
        memory.restore_annotation(engine, {**document, "faults": rows}, boot_id="b", now=2.0, wall_to_engine=times)
        engine.step(3.0)
        engine.intent()


def pods(data: bytes) -> None:
    """A process's cgroup file and the kubelet's checkpoint."""
    pod_uid(_text(data))
    try:
        allotted(data)
    except SourceError as error:
        str(error)


def sysfs(data: bytes) -> None:
    """RDMA and PCIe files: values of a real node's shape, some of them replaced by lines of the input."""
    tree = RecordedTree()
    tree.patch({**rdma.healthy_node(), **_FUNCTIONS}, _mistaken)
    polls = sysfs_polls(tree, True)
    paths, lines = _sysfs_paths(), _text(data).split("\n")[:_LINES_LIMIT]
    for at, line in enumerate(["", *lines]):
        number, _, value = line.partition(" ")
        if number.isdecimal() and number.isascii() and len(number) < 6:
            tree.patch({paths[int(number) % len(paths)]: value}, _mistaken)
        if at in (0, 1, 2, len(lines)):
            for poll in polls:
                check_batch(poll.poll(at * 10.0))


def proc(data: bytes) -> None:
    """Files of /proc, the same text in each: mounts, memory, pressure, routes, interfaces."""
    text = _text(data)
    parse_mounts(text)
    tree = RecordedTree()
    tree.patch({f"{PROC}/{path}": text for path in _PROC_FILES}, _mistaken)
    for number in range(2):
        tree.patch({f"devices/system/edac/mc/mc{number}/ce_count": text}, _mistaken)
    machine = Machine(memory=lambda: None, clock=lambda: None)
    check_batch(HostPoll(tree, Below(tree, PROC), machine, FakeClock()).poll(1.0))


_PROC_FILES = ("vmstat", "pressure/cpu", "pressure/memory", "pressure/io", "1/net/route", "1/net/ipv6_route",
               "1/net/dev", "net/route", "net/bonding/bond0", "1/net/bonding/bond0", "1/net/vlan/config", "1/mountinfo")
_FUNCTIONS: rdma.Patch = {
    f"bus/pci/devices/{slot}/{name}": value for slot in ("0000:18:00.0", "0000:3b:00.0")
    for name, value in (("vendor", "0x15b3"), ("class", "0x020000"), ("current_link_speed", "32.0 GT/s PCIe"),
                        ("max_link_speed", "32.0 GT/s PCIe"), ("current_link_width", "16"), ("max_link_width", "16"),
                        ("aer_dev_correctable", "RxErr 0\nTOTAL_ERR_COR 0"))}


@cache
def _sysfs_paths() -> tuple[str, ...]:
    texts = {**rdma.healthy_node(), **_FUNCTIONS}
    return tuple(path for path, value in texts.items() if isinstance(value, str))


@cache
def _shipped() -> RuleSet:
    return load_rules([shipped_rules_dir()])


@cache
def _few_rules() -> RuleSet:
    return load_rule_texts([("r.yaml", seeds.RULES)])


def _entries(data: bytes) -> list[Entry]:
    entries = []
    for number, line in enumerate(_text(data).split("\n")[:_LINES_LIMIT], 1):
        try:
            entries.append(Entry(number, 1, json.loads(line)))
        except (ValueError, RecursionError):
            continue
    return entries


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _mistaken(message: str) -> None:
    """A path or a value that a recording would refuse is no input of a source."""


def _seeds(*texts: str) -> tuple[bytes, ...]:
    return tuple(text.encode() for text in texts)


def tokens(target: Target) -> list[bytes]:
    """Pieces of the seeds, of which a fuzzer without coverage puts inputs together."""
    found = {piece for seed in target.seeds for piece in re.findall(rb"\w+|\W", seed)}
    return sorted(found | {b"\x00", b"-1", b"18446744073709551615", b"1e999", b"nan", "\u0661".encode(), b"9" * 400})


TARGETS: dict[str, Target] = {
    "kmsg_records": Target(kmsg_records, _seeds(seeds.KMSG, *seeds.KERNEL_LINES)),
    "kernel_lines": Target(kernel_lines, _seeds(*seeds.KERNEL_LINES)),
    "exporter_page": Target(exporter_page, _seeds(*seeds.PAGES)),
    "recording": Target(recording, _seeds(*seeds.RECORDINGS)),
    "recording_yaml": Target(recording_yaml, _seeds(seeds.RECORDING_YAML)),
    "replay": Target(replay, _seeds(*seeds.RECORDINGS)),
    "rules_yaml": Target(rules_yaml, _seeds(seeds.RULES, seeds.OVERRIDES)),
    "mapping_yaml": Target(mapping_yaml, _seeds(seeds.MAPPING)),
    "node_annotations": Target(node_annotations, _seeds(*seeds.ANNOTATIONS)),
    "pods": Target(pods, _seeds(*seeds.CGROUPS, seeds.CHECKPOINT)),
    "sysfs": Target(sysfs, _seeds(seeds.SYSFS)),
    "proc": Target(proc, _seeds(*seeds.PROC_FILES)),
}
