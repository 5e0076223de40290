"""Entries of a recording that map straight to facts and signals, and those whose sources do not exist yet."""

from collections.abc import Iterable
from typing import Any

from nodeguard.model.device import NODE, Device, gpu, rdma_port
from nodeguard.model.fault import ACTIONS
from nodeguard.model.sample import Batch, Booted, Expected, Fact, NodeIs, PodRef, Pods, Repaired, Sample
from nodeguard.model.signals import SIGNALS
from nodeguard.sources.rdma_expected import expected_samples
from nodeguard.sources.recording import checks
from nodeguard.sources.recording.checks import Report

AGENT = "agent"
_RATE = SIGNALS["rdma_port_rate_expected_gbps"]



def node(entry: Any, report: Report) -> Iterable[Batch]:
    """The node's identity, boot and expectations."""
    entry = checks.mapping(entry, "node", report)
    checks.unknown_keys(entry, ("name", "uid", "boot_id", "expect"), "node", report)
    facts: list[Fact] = []
    samples: list[Sample] = []
    if "uid" in entry:
        name = checks.text(entry.get("name", ""), "name", report)
        facts.append(NodeIs(name, checks.text(entry["uid"], "uid", report)))
    if "boot_id" in entry:
        facts.append(Booted(checks.text(entry["boot_id"], "boot_id", report)))
    if "expect" in entry:
        expected, rates = _expected(entry["expect"], report)
        facts.append(expected)
        if "gpu" in expected.counts:
            samples.append(Sample("gpu_count_expected", NODE, expected.counts["gpu"]))
        samples += expected_samples(rates)
    yield Batch(source=AGENT, facts=tuple(facts), samples=tuple(samples))


def _expected(entry: Any, report: Report) -> tuple[Expected, dict[Device, float | None]]:
    entry = checks.mapping(entry, "expect", report)
    checks.unknown_keys(entry, ("gpu", "rdma"), "expect", report)
    counts = {"gpu": checks.whole(entry["gpu"], "expect gpu", report)} if "gpu" in entry else {}
    rates: dict[Device, float | None] = {}
    for name, wanted in checks.mapping(entry.get("rdma", {}), "expect rdma", report).items():
        checks.unknown_keys(checks.mapping(wanted or {}, f"expect {name}", report), ("rate_gbps", "port"),
                            f"expect {name}", report)
        port = wanted.get("port", 1) if isinstance(wanted, dict) else 1
        rate = wanted.get("rate_gbps") if isinstance(wanted, dict) else None
        value = checks.reading(_RATE, rate, report)
        device = rdma_port(str(name), checks.whole(port, "port", report))
        rates[device] = None if isinstance(value, str) else value
    return Expected(frozenset(rates), counts), rates


def pods(entry: Any, report: Report) -> Batch:
    """Which pods use which GPU; null: it was looked for, and is unknown."""
    by_device: dict[Device, tuple[PodRef, ...]] = {}
    looked_for: set[Device] = set()
    for name, listed in checks.mapping(entry, "pods", report).items():
        device = Device(name) if str(name).startswith("gpu/") else gpu(str(name))
        looked_for.add(device)
        if isinstance(listed, list):
            by_device[device] = tuple(_pod(one, report) for one in listed)
        elif listed is not None:
            report(f"pods of {name} must be a list")
    return Batch(source=AGENT, facts=(Pods(by_device, frozenset(looked_for)),))


def _pod(entry: Any, report: Report) -> PodRef:
    entry = checks.mapping(entry, "a pod", report)
    checks.unknown_keys(entry, ("uid", "namespace", "name"), "a pod", report)
    return PodRef(*(checks.text(entry.get(key, ""), key, report) for key in ("uid", "namespace", "name")))


def repaired(entry: Any, report: Report) -> Batch:
    """The record that a remedy leaves."""
    entry = checks.mapping(entry, "repaired", report)
    checks.unknown_keys(entry, ("device", "action"), "repaired", report)
    device = checks.text(entry.get("device"), "device", report)
    action = checks.text(entry.get("action"), "action", report)
    if action not in ACTIONS:
        report(f"action must be one of {', '.join(ACTIONS)}, not {action!r}{checks.suggestion(action, ACTIONS)}")
        return Batch(source=AGENT)
    return Batch(source=AGENT, facts=(Repaired(Device(device), action),))
