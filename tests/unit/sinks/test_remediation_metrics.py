"""Numbers of incidents on the metrics page."""

from prometheus_client.parser import text_string_to_metric_families

from nodeguard.sinks.metrics import Metrics, MetricsSnapshot
from nodeguard.sinks.remediation_metrics import LIMITS, RemediationMetrics


def page(numbers: RemediationMetrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Samples of the page by name and label values."""
    metrics = Metrics()
    metrics.publish(MetricsSnapshot(counters=numbers.counters(), histograms=numbers.histograms()))
    families = text_string_to_metric_families(metrics.render().decode())
    return {(sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in families for sample in family.samples if "remediation" in family.name}


def test_a_phase_is_a_histogram_as_prometheus_reads_it() -> None:
    """Counts add up from limit to limit, a value on a limit belongs to it, the last bucket holds all."""
    numbers = RemediationMetrics()
    for seconds in (0.3, 0.31, 100_000.0):
        numbers.reached("bound", seconds)
    numbers.reached("gone", 0.0)
    found = page(numbers)
    buckets = {labels: value for (name, labels), value in found.items() if name.endswith("_bucket")}
    assert [buckets[limit, "bound"] for limit in ("0.2", "0.3", "0.6", "86400.0", "+Inf")] == [0, 1, 2, 2, 3]
    assert len(buckets) == 2 * (len(LIMITS) + 1)
    assert found["nodeguard_remediation_phase_seconds_count", ("bound",)] == 3
    assert round(found["nodeguard_remediation_phase_seconds_sum", ("bound",)], 2) == 100_000.61
    assert buckets["0.01", "gone"] == 1


def test_work_is_counted_by_how_it_ended() -> None:
    """Zero is told too, so that a first increase is one."""
    numbers = RemediationMetrics()
    assert page(numbers) == {("nodeguard_remediation_begun_total", ()): 0.0}
    numbers.begun()
    numbers.closed("released")
    numbers.restarted("Job")
    assert page(numbers) == {
        ("nodeguard_remediation_begun_total", ()): 1.0, ("nodeguard_remediation_closed_total", ("released",)): 1.0,
        ("nodeguard_remediation_restarts_total", ("Job",)): 1.0}
