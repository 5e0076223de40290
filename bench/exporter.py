"""What a scrape costs: a page of 8 GPUs with 60 metrics each, as dcgm-exporter writes it, read by its mapping."""

import time

from bench.table import Row, percentile
from nodeguard.config.mappings import shipped_mapping
from nodeguard.sources.exporter import ExporterPages

_GPUS, _METRICS, _SCRAPES = 8, 60, 100


def _page(energy: int) -> str:
    known = list(shipped_mapping("dcgm").metrics)[:24]
    others = [f"DCGM_FI_PROF_OTHER_{number}" for number in range(_METRICS - len(known) - 1)]
    lines: list[str] = []
    for metric in ["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", *known, *others]:
        lines += [f"# HELP {metric} What it is (in its unit).", f"# TYPE {metric} gauge"]
        value = energy if "ENERGY" in metric else 42
        lines += [f'{metric}{{gpu="{gpu}",UUID="GPU-{gpu}4c1f8e2-52c1-4c1f-9d2a-0b1c7e0d4a5{gpu}",'
                  f'pci_bus_id="00000000:{gpu + 16:X}:00.0",device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",'
                  f'Hostname="dcgm-exporter-x7k2p",DCGM_FI_DRIVER_VERSION="570.124.06",container="main",'
                  f'namespace="research",pod="train-{gpu}"}} {value}' for gpu in range(_GPUS)]
    return "\n".join(lines) + "\n"


def run() -> list[Row]:
    """The first scrape, and those after it."""
    texts = [_page(number) for number in range(_SCRAPES)]
    pages = ExporterPages("dcgm", shipped_mapping("dcgm"))
    spent: list[float] = []
    for text in texts:
        begin = time.process_time()
        pages.page(text, 0.0)
        spent.append((time.process_time() - begin) * 1000)
    note = f"{_GPUS} GPUs, {_METRICS} metrics, {len(texts[0]) // 1000} kB"
    return [Row("exporter page, first sight: CPU", spent[0], "ms", None, note),
            Row("exporter page: CPU p50", percentile(spent[1:], 0.5), "ms", 7, note),
            Row("exporter page: CPU p99", percentile(spent[1:], 0.99), "ms", 7, "")]
