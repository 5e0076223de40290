"""The agent's settings as a table: to add one, add a row here and a field in :mod:`.settings`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from nodeguard.config.durations import parse_duration, parse_positive_duration
from nodeguard.config.mappings import mapping_names
from nodeguard.config.ports import parse_expected_ports, parse_hcas
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.config.words import hint, shown

LOG_LEVELS = ("debug", "info", "warning", "error")
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_EXPORTER = re.compile(r"[a-z0-9]([-_.a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Address(NamedTuple):
    """Where to listen. An empty host means every interface."""

    host: str
    port: int


class ExporterAddress(NamedTuple):
    """One exporter of this node."""

    name: str
    """Its source is called ``exporter/<name>``."""
    mapping: str
    """See :func:`nodeguard.config.mappings.shipped_mapping`."""
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting: a flag, an environment variable and a key of the settings file.

    ``parse`` takes what any of the three gives (text, or a YAML scalar or list) and raises ValueError with a
    sentence. ``switch`` options are flags without a value; ``many`` may be repeated.
    """

    name: str
    parse: Callable[[object], object]
    default: object
    help: str
    metavar: str | None = None
    switch: bool = False
    many: bool = False

    @property
    def flag(self) -> str:
        """Such as ``--node-name``."""
        return "--" + self.key

    @property
    def key(self) -> str:
        """Its key in the settings file, such as ``node-name``."""
        return self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its environment variable, such as ``NODEGUARD_NODE_NAME``."""
        return "NODEGUARD_" + self.name.upper()


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be text, not {shown(value)}; put it in quotes")
    return value


def _path(value: object) -> Path:
    text = _text(value)
    if "\0" in text:
        raise ValueError("must be a path, which holds no NUL character")
    return Path(text)


def _paths(value: object) -> tuple[Path, ...]:
    """A list, or text with ``:`` between paths as in PATH."""
    return tuple(_path(one) for one in (value if isinstance(value, list | tuple) else _text(value).split(":")))


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in _BOOLEANS:
        raise ValueError(f"must be true or false, not {shown(value)}")
    return _BOOLEANS[value.lower()]


def _address(value: object) -> Address:
    host, colon, port = _text(value).rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError(f"must be ADDR:PORT with a port of at most 65535, such as :9820, not {shown(value)}")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"must have an IPv6 address in brackets, such as [::1]:9820, not {shown(value)}")
    return Address(host.strip("[]"), int(port))


def _exporters(value: object) -> tuple[ExporterAddress, ...]:
    """A list, or text with commas between exporters."""
    items = value if isinstance(value, list | tuple) else _text(value).split(",")
    found = tuple(_exporter(_text(item).strip()) for item in items)
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two exporters are called {shown(twice)}: write NAME:MAPPING=URL to give one another name")
    return found


def _exporter(text: str) -> ExporterAddress:
    called, equals, url = text.partition("=")
    name, _, mapping = called.partition(":")
    if not equals or _EXPORTER.fullmatch(name) is None:
        raise ValueError(f"must be NAME=URL or NAME:MAPPING=URL, such as dcgm=http://127.0.0.1:9400/metrics, "
                         f"not {shown(text)}")
    if (mapping or name) not in mapping_names():
        raise ValueError(f"unknown exporter mapping {shown(mapping or name)}{hint(mapping or name, mapping_names())}")
    return ExporterAddress(name, mapping or name, _exporter_url(url))


def _exporter_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not text.isprintable() or not text.isascii() or " " in text:
        raise ValueError(f"must have an http or https URL, not {shown(text)}")
    return text


def _host_paths(value: object) -> tuple[str, ...]:
    paths = _paths(value)
    wrong = next((path for path in paths if not path.is_absolute()), None)
    if wrong is not None:
        raise ValueError(f"must be a path from the root on, such as /var/lib/kubelet, not {shown(str(wrong))}")
    return tuple(map(str, paths))


def _healthz(value: object) -> str:
    text = value if value == "" else _exporter_url(_text(value))
    if text and urlsplit(text).scheme != "http":
        raise ValueError(f"must be an http URL, such as http://127.0.0.1:10248/healthz, not {shown(text)}")
    return str(text)


def _runtime(value: object) -> str:
    return "" if value == "" else _host_paths([value])[0]


def _count(value: object) -> int:
    if isinstance(value, bool) or not str(value).isdecimal() or int(str(value)) > 1024:
        raise ValueError(f"must be a whole number of at most 1024, not {shown(value)}")
    return int(str(value))


def _level(value: object) -> str:
    if value not in LOG_LEVELS:
        raise ValueError(f"unknown level {shown(value)}{hint(value, LOG_LEVELS)}")
    return str(value)


def _dns_label(value: object) -> str:
    text = _text(value)
    if _LABEL.fullmatch(text) is None:
        raise ValueError(f"must be a Kubernetes namespace, not {shown(text)}")
    return text


AGENT_OPTIONS: tuple[Option, ...] = (
    Option(name="node_name", parse=_text, default=None, metavar="NAME",
           help="name of this Node object (in a pod: spec.nodeName)"),
    Option(name="kubeconfig", parse=_path, default=None, metavar="FILE",
           help="how to reach the API server; default: the pod's service account"),
    Option(name="no_kube", parse=_switch, default=False, switch=True,
           help="work without an API server: log and metrics only"),
    Option(name="namespace", parse=_dns_label, default="nodeguard", metavar="NS",
           help="namespace of nodeguard's own objects"),
    Option(name="kmsg", parse=_path, default=Path("/dev/kmsg"), metavar="PATH", help="kernel log to follow"),
    Option(name="kmsg_any_facility", parse=_switch, default=False, switch=True,
           help="for tests: believe lines that programs wrote to the kernel log"),
    Option(name="nvml_library", parse=_path, default=None, metavar="PATH",
           help="libnvidia-ml.so.1 to load; default: the linker's"),
    Option(name="no_nvml", parse=_switch, default=False, switch=True,
           help="do not read NVML, although there are NVIDIA GPUs"),
    Option(name="exporter", parse=_exporters, default=(), metavar="NAME=URL", many=True,
           help="an exporter of this node to scrape, such as dcgm=http://127.0.0.1:9400/metrics; NAME is dcgm, amd, "
                "intel or ascend, or NAME:MAPPING gives it another; may be repeated"),
    Option(name="no_pcie", parse=_switch, default=False, switch=True,
           help="do not read PCIe errors and links, nor which network adapter belongs to which GPU"),
    Option(name="no_host", parse=_switch, default=False, switch=True,
           help="do not read memory, disks, clock and network of the host, nor ask kubelet and container runtime"),
    Option(name="host_path", parse=_host_paths, default=("/", "/var/lib/kubelet", "/var/lib/containerd", "/var/log"),
           metavar="PATH", many=True,
           help="a path of the host whose local file system is watched; may be repeated"),
    Option(name="kubelet_healthz", parse=_healthz, default="http://127.0.0.1:10248/healthz", metavar="URL",
           help="where the kubelet says how it is, from the host's own network; empty: it is not asked"),
    Option(name="container_runtime", parse=_runtime, default=None, metavar="SOCKET",
           help="the container runtime's socket; default: the usual places; empty: it is not asked"),
    Option(name="expect_gpus", parse=_count, default=None, metavar="N",
           help="how many GPUs this node should have; default: no expectation"),
    Option(name="expect_nvlinks", parse=_count, default=None, metavar="N",
           help="how many NVLinks should be up on every GPU; default: no expectation"),
    Option(name="no_rdma", parse=_switch, default=False, switch=True, help="do not read RDMA ports"),
    Option(name="rdma_exclude", parse=parse_hcas, default=(), metavar="NAME", many=True,
           help="an RDMA device that must not be read, such as mlx5_4; may be repeated"),
    Option(name="expect_rdma", parse=parse_expected_ports, default=(), metavar="NAME[/PORT][=GBPS]", many=True,
           help="an RDMA port that should be up, and its rate, such as mlx5_0/1=400; may be repeated"),
    Option(name="sys_root", parse=_path, default=Path("/sys"), metavar="DIR", help="where sysfs is mounted"),
    Option(name="proc_root", parse=_path, default=Path("/proc"), metavar="DIR", help="where procfs is mounted"),
    Option(name="kubelet_root", parse=_path, default=Path("/var/lib/kubelet"), metavar="DIR",
           help="the kubelet's directory: tells which pods hold a faulty GPU"),
    Option(name="pods_log_root", parse=_path, default=Path("/var/log/pods"), metavar="DIR",
           help="where pods' logs are: tells their names"),
    Option(name="state_dir", parse=_path, default=Path("/var/lib/nodeguard"), metavar="DIR",
           help="what must outlive a restart is kept here"),
    Option(name="rules", parse=_paths, default=(shipped_rules_dir(),), metavar="DIR", many=True,
           help="rules to use instead of the shipped ones; may be repeated"),
    Option(name="overrides", parse=_paths, default=(), metavar="DIR", many=True,
           help="changes of single rules; may be repeated"),
    Option(name="rules_poll", parse=parse_positive_duration, default=1.0, metavar="DURATION",
           help="how often to look for changed rules"),
    Option(name="soak", parse=parse_duration, default=600.0, metavar="DURATION",
           help="how long a changed rule may do no more than set a condition"),
    Option(name="listen", parse=_address, default=Address("", 9820), metavar="ADDR:PORT",
           help="where /metrics, /healthz and /readyz are served"),
    Option(name="log_level", parse=_level, default="info", metavar="LEVEL", help=f"one of {', '.join(LOG_LEVELS)}"),
)
