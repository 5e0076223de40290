"""Mappings of exporters: the shipped ones load, and every mistake in one is told with its place."""

import pytest

from nodeguard.config.mappings import load_mapping, mapping_names, shipped_mapping
from nodeguard.model.errors import ConfigError, UserError
from nodeguard.model.mapping import MetricReading

HEAD = """apiVersion: nodeguard.io/v1
kind: ExporterMapping
metadata: {name: x, vendor: amd}
device: {uuid: [id]}
"""


def mistakes(metrics: str, head: str = HEAD) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_mapping(head + metrics, "x.yaml")
    return str(caught.value).splitlines()


def test_the_shipped_ones() -> None:
    """One file a vendor, called as in ``--exporter``; each is about the vendor that it names."""
    assert set(mapping_names()) == {"amd", "ascend", "dcgm", "intel"}
    assert all(shipped_mapping(name).name == name for name in mapping_names())


def test_an_unknown_name() -> None:
    """One sentence, with the nearest one."""
    with pytest.raises(UserError, match="there is no exporter mapping 'dcmg'; did you mean 'dcgm'"):
        shipped_mapping("dcmg")


def test_what_a_metric_may_tell() -> None:
    """One reading or several, whole or a bit of it, with labels of its own or taken over."""
    found = load_mapping(HEAD + """metrics:
  t: {signal: gpu_temperature_celsius, scale: 0.1, where: {at: [die, ""]}}
  h: {signal: gpu_health_state, from: {part: what}, values: {1: healthy, 0: unhealthy}}
  m: [{signal: gpu_clock_event_idle, bit: 0}, {signal: gpu_clock_event_hw_thermal, bit: 6}]
  x: {signal: gpu_xid, last: true}
  n: {signal: gpu_count, on: node}
""", "x.yaml")
    assert found.metrics["t"] == (MetricReading(
        signal="gpu_temperature_celsius", scale=0.1, where=(("at", ("die", "")),)),)
    assert found.metrics["h"][0].copied == (("part", "what"),)
    assert [one.shift for one in found.metrics["m"]] == [0, 6]
    assert found.metrics["x"][0].last
    assert found.metrics["n"][0].on_node


def test_every_mistake_is_told_at_once() -> None:
    """With line, column and the metric's name, and the nearest valid word."""
    assert mistakes("""metrics:
  a: {signal: gpu_temperature_celcius}
  b: {signal: gpu_temperature_celsius, sclae: 2}
  c: {signal: rdma_port_state}
  d: {signal: gpu_sxid, last: true}
  e: {signal: gpu_xid}
  f: {signal: gpu_health_state, labels: {prat: x}, values: {1: healthy}}
  g: {signal: gpu_health_state}
  h: {signal: gpu_health_state, values: {1: health}}
  i: [{signal: gpu_temperature_celsius, values: {1: hot}}, {signal: gpu_ecc_double_bit_event, last: true}]
""") == [
        "x.yaml:6:15: a: unknown signal 'gpu_temperature_celcius'; did you mean 'gpu_temperature_celsius'?",
        "x.yaml:7:40: b: unknown key 'sclae'; did you mean 'scale'?",
        "x.yaml:8:15: c: rdma_port_state does not belong to gpu",
        "x.yaml:9:15: d: gpu_sxid does not belong to gpu",
        "x.yaml:10:15: e: 'last' is for gpu_xid, which needs it: the metric holds the number of the last one",
        "x.yaml:11:15: f: gpu_health_state has no label 'prat'; did you mean 'part'?",
        "x.yaml:12:15: g: gpu_health_state is a word: 'values' must say which number is which",
        "x.yaml:13:15: h: gpu_health_state has no state 'health'; did you mean 'healthy'?",
        "x.yaml:14:16: i: gpu_temperature_celsius has numbers, not words",
        "x.yaml:14:69: i: gpu_ecc_double_bit_event is not read from exporters: name them in the signal's sources",
    ]


@pytest.mark.parametrize(("text", "mistake"), [
    ("metrics: {", "x.yaml:6:1: is not valid YAML"),
    ("metrics: {}\nblanks: [[1]]\n", "x.yaml:6:10: 'blanks' "),
    ("metrics: {}\nmovnig: [a]\n", "x.yaml:6:1: unknown key 'movnig'; did you mean 'moving'?"),
])
def test_a_file_that_is_no_mapping(text: str, mistake: str) -> None:
    """As with rules."""
    assert mistakes(text)[0].startswith(mistake)
