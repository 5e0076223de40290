"""Inputs that a fuzzer found and that once raised: each costs itself only."""

import json

import pytest

from nodeguard.config.mappings import shipped_mapping
from nodeguard.sources.exporter import ExporterPages
from tests.fuzz.targets import TARGETS

FINDINGS = {
    "a time stamp of 400 digits on an exporter's line": (
        "exporter_page", b'npu_chip_info_temperature{id="0",vdie_id="A-B"} 51 ' + b"9" * 400 + b"\n"),
    "a kernel line with half a surrogate pair": ("replay", b'{"at":1,"kmsg":"NVRM: \\ud800 Xid"}'),
    "the same with a header": ("replay", b'{"at":1,"kmsg":"4,1,1,-;\\udcff"}'),
    "a moment of 400 digits": ("recording", b'{"at":' + b"9" * 400 + b',"kmsg":"x"}'),
    "a reading of 400 digits": (
        "replay", b'{"at":1,"nvml":{"gpus":{"GPU-a":{"gpu_temperature_celsius":' + b"9" * 400 + b"}}}}"),
    "a path of ten thousand names": (
        "recording", json.dumps({"at": 1, "sysfs": {"a/" * 10_000 + "b": None}}).encode()),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_it_is_borne_now(name: str) -> None:
    """By the target that it was found with."""
    target, data = FINDINGS[name]
    TARGETS[target].run(data)


def test_the_rest_of_the_page_is_read() -> None:
    """A time stamp that no number can hold costs its line."""
    page = ('npu_chip_info_temperature{id="0",vdie_id="A-B"} 51 ' + "9" * 400 + "\n"
            'npu_chip_info_temperature{id="1",vdie_id="C-D"} 52\n')
    batch = ExporterPages("ascend", shipped_mapping("ascend")).page(page, 0.0)
    assert [one.value for one in batch.samples if one.signal == "gpu_temperature_celsius"] == [52]
    assert batch.counts["exporter_malformed_total"] == 1
