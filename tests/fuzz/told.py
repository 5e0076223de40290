"""What holds for anything that a parser tells, whatever it was given."""

import json
import math

from nodeguard.model.device import KINDS, kind_of
from nodeguard.model.sample import Batch, Event, Sample, Told
from nodeguard.model.signals import SIGNALS


def check_batch(batch: Batch | None) -> None:
    """Known signals on known kinds of device, finite numbers, and the whole of it can be recorded."""
    for part in () if batch is None else (Told(batch.samples, batch.events, batch.facts), *batch.then):
        check(part)


def check(told: Told | None) -> None:
    """See :func:`check_batch`."""
    for sample in () if told is None else told.samples:
        check_sample(sample)
    for event in () if told is None else told.events:
        check_event(event)


def check_sample(sample: Sample) -> None:
    assert SIGNALS[sample.signal].kind != "event", sample
    assert kind_of(sample.device) in KINDS, sample
    assert sample.value is None or isinstance(sample.value, str) or math.isfinite(sample.value), sample
    assert list(sample.labels) == sorted(sample.labels), sample


def check_event(event: Event) -> None:
    assert SIGNALS[event.signal].kind == "event", event
    assert kind_of(event.device) in KINDS, event
    json.dumps(dict(event.attributes), allow_nan=False)
    assert event.stamp is None or math.isfinite(event.stamp), event
