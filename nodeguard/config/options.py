"""The agent's settings as a table: to add one, add a row here and a field in :mod:`.settings`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nodeguard.config.durations import parse_duration, parse_positive_duration
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.config.words import hint, shown

LOG_LEVELS = ("debug", "info", "warning", "error")
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Address(NamedTuple):
    """Where to listen. An empty host means every interface."""

    host: str
    port: int


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
    Option(name="expect_gpus", parse=_count, default=None, metavar="N",
           help="how many GPUs this node should have; default: no expectation"),
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
