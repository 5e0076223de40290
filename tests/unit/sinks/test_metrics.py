"""The metrics page says what the last snapshot says, in a form that Prometheus takes."""

import re

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from nodeguard.model import device as devices
from nodeguard.model.fault import Fault
from nodeguard.model.intent import Condition
from nodeguard.model.signals import SIGNALS
from nodeguard.sinks.metrics import Metrics, MetricsSnapshot, Series

GPU = devices.gpu("GPU-aaaa")
PORT = devices.rdma_port("mlx5_0", 1)
FAULT = Fault(
    rule="gpu-xid-79", device=GPU, pci=None, severity="critical", action="reboot_node", effect="evict", would=None,
    scope="node", condition="GpuLost", message="gone", runbook=None, since=1.0, last=1.0, count=1, evidence={})
FULL = MetricsSnapshot(
    series=(("gpu_temperature_celsius", GPU, (), 41.0), ("pcie_replay_total", GPU, (), 7),
            ("rdma_port_state", PORT, (), "ACTIVE"), ("nvlink_state", GPU, (("link", "3"),), "inactive"),
            ("source_up", devices.NODE, (("source", "kmsg"),), 1)),
    faults=(FAULT,),
    conditions=(Condition(type="GpuLost", status="True", reason="R", message="m", since=1.0),),
    counters={("gpu_xid_total", (("code", "79"), ("device", GPU))): 3, ("kmsg_records", ()): 12},
    gauges={("node_writes_pending", ()): 1},
    rules_hash="abc")


def page(snapshot: MetricsSnapshot) -> list[Sample]:
    """Every sample of the page, as Prometheus' parser reads it."""
    metrics = Metrics()
    metrics.publish(snapshot)
    return samples(metrics)


def samples(metrics: Metrics) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(metrics.render().decode()) for sample in family.samples]


def values(snapshot: MetricsSnapshot, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """Values of one metric by its labels."""
    return {tuple(sorted(s.labels.items())): s.value for s in page(snapshot) if s.name == f"nodeguard_{name}"}


def test_series_carry_device_and_labels() -> None:
    """A reading is nodeguard_<signal> with its device."""
    assert values(FULL, "gpu_temperature_celsius") == {(("device", GPU),): 41.0}
    assert values(FULL, "pcie_replay_total") == {(("device", GPU),): 7.0}
    assert values(FULL, "source_up") == {(("device", "node"), ("source", "kmsg")): 1.0}


def test_a_state_word_is_one_series_a_state() -> None:
    """The present state is 1, each other state of the catalogue 0."""
    states = values(FULL, "rdma_port_state")
    assert len(states) == len(SIGNALS["rdma_port_state"].states)
    assert [dict(labels)["state"] for labels, value in states.items() if value] == ["ACTIVE"]
    links = values(FULL, "nvlink_state")
    assert links[("device", GPU), ("link", "3"), ("state", "inactive")] == 1.0
    assert links[("device", GPU), ("link", "3"), ("state", "active")] == 0.0


def test_a_state_the_catalogue_does_not_know_makes_no_series() -> None:
    """Hardware cannot make the page grow: an unknown word leaves all known states 0."""
    states = values(MetricsSnapshot(series=(("rdma_port_state", PORT, (), "7: WEIRD"),)), "rdma_port_state")
    assert set(states.values()) == {0.0}


def test_faults_and_conditions() -> None:
    """A fault is 1 with all that a routing rule needs; a condition is 1 for its status and 0 for the others."""
    (labels,) = values(FULL, "fault")
    assert dict(labels) == {"rule": "gpu-xid-79", "device": GPU, "severity": "critical", "action": "reboot_node",
                            "effect": "evict", "condition": "GpuLost"}
    conditions = {dict(each)["status"]: value for each, value in values(FULL, "condition").items()}
    assert conditions == {"True": 1.0, "False": 0.0, "Unknown": 0.0}


def test_counters_end_in_total() -> None:
    """A counter may be named with or without its ending; labelled ones keep their labels."""
    assert values(FULL, "kmsg_records_total") == {(): 12.0}
    assert values(FULL, "gpu_xid_total") == {(("code", "79"), ("device", GPU)): 3.0}


def test_rules_are_shown() -> None:
    """Hash of the rules in force, and whether newer ones are refused."""
    assert values(FULL, "rules_info") == {(("hash", "abc"),): 1.0}
    assert values(FULL, "rules_invalid") == {(): 0.0}
    assert values(MetricsSnapshot(rules_invalid="a.yaml:1:1: no"), "rules_invalid") == {(): 1.0}


def test_a_gone_gpu_leaves_no_series() -> None:
    """Only the last snapshot is on the page."""
    metrics = Metrics()
    metrics.publish(FULL)
    assert any(sample.labels.get("device") == GPU for sample in samples(metrics))
    metrics.publish(MetricsSnapshot(series=(("gpu_temperature_celsius", devices.gpu("GPU-bbbb"), (), 40.0),)))
    assert not any(sample.labels.get("device") == GPU for sample in samples(metrics))


def test_a_series_told_twice_is_on_the_page_once() -> None:
    """Prometheus refuses a page with a repeated series; the later value wins."""
    first: Series = ("gpu_temperature_celsius", GPU, (), 1.0)
    twice = MetricsSnapshot(series=(first, (*first[:3], 2.0)))
    assert [s.name for s in page(twice)].count("nodeguard_gpu_temperature_celsius") == 1
    assert values(twice, "gpu_temperature_celsius") == {(("device", GPU),): 2.0}


def test_names_follow_the_conventions() -> None:
    """Own prefix, help for all, counters and only counters in _total, base units."""
    metrics = Metrics()
    metrics.publish(FULL)
    for family in text_string_to_metric_families(metrics.render().decode()):
        assert re.fullmatch(r"(nodeguard|process)_[a-zA-Z0-9_]+", family.name)
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            assert not re.search(r"_(ms|milliseconds|minutes|percent|kb|mb|mhz)(_|$)", sample.name)


def test_label_values_are_escaped() -> None:
    """Whatever a driver puts into a label, the page still parses and gives it back."""
    odd = 'a"b\\c\nd'
    snapshot = MetricsSnapshot(counters={("gpu_xid_total", (("code", odd),)): 1})
    assert values(snapshot, "gpu_xid_total") == {(("code", odd),): 1.0}


def test_the_process_is_measured() -> None:
    """Memory and CPU of the agent itself are on the page: it promises limits for both."""
    names = {sample.name for sample in page(MetricsSnapshot())}
    assert {"process_resident_memory_bytes", "process_cpu_seconds_total"} <= names
