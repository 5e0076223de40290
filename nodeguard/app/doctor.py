"""Doctor: what this node lets the agent see and do, and why not. It changes nothing.

Every check is a small function over what it is given; here they are put together from the agent's settings.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeguard.app import doctor_kube, doctor_node
from nodeguard.app.doctor_finding import Check, Finding, examine
from nodeguard.app.doctor_gpus import Gpus, expectation, on_the_bus
from nodeguard.app.doctor_nvml import Doctor, Driver
from nodeguard.app.person import quiesced_until
from nodeguard.config.settings import AgentSettings
from nodeguard.kube.api import Api, Object, node_path
from nodeguard.model.clock import Clock
from nodeguard.model.errors import ApiError, UserError
from nodeguard.sources.host_clock import WallClock
from nodeguard.sources.nvml import NvmlPace
from nodeguard.sources.pods import KUBELET_ROOT, PODS_LOG_ROOT
from nodeguard.vendors.nvidia.pci import Bus

_NODE_TIMEOUT = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """The world as doctor reaches it."""

    driver: Driver
    """NVML, not opened."""
    api: Api | UserError | None
    """The API server; why there is none; None: not wanted."""
    ring: Callable[[], int | None]
    """Bytes of the kernel's log buffer."""
    kept: Callable[[], WallClock | None]
    """How the wall clock is kept."""
    clock: Clock
    kubelet_root: Path = KUBELET_ROOT
    pods_log_root: Path = PODS_LOG_ROOT
    maps: Path = Path("/proc/self/maps")
    call_patience: float = 10.0
    """Seconds that one driver call may take: opening a driver that nobody keeps open takes some."""
    patience: float = 60.0
    """Seconds after which a check is left behind."""


def diagnose(settings: AgentSettings, doors: Doors) -> list[Finding]:
    """Every finding, in the order in which people read them. Never raises for what it meets."""
    node = _node(settings, doors)
    return examine(_checks(settings, doors, node), doors.clock, doors.patience)


def _node(settings: AgentSettings, doors: Doors) -> Object | ApiError | None:
    if doors.api is None or isinstance(doors.api, UserError):
        return None
    try:
        return doors.api.get(node_path(settings.node_name), timeout=_NODE_TIMEOUT)
    except ApiError as error:
        return error


def _checks(settings: AgentSettings, doors: Doors, node: Object | ApiError | None) -> Mapping[str, Check]:
    labels = (node.get("metadata") or {}).get("labels") or {} if isinstance(node, dict) else None
    return {
        "kernel log": lambda: doctor_node.kernel_log(settings.kmsg, doors.ring()),
        "facility": lambda: doctor_node.facility(any_facility=settings.kmsg_any_facility),
        "boot ID": lambda: doctor_node.boot_id(settings.proc_root),
        "GPUs": lambda: _gpus(settings, doors, node),
        "pods": lambda: _pods(doors),
        "state": lambda: doctor_node.state_directory(settings.state_dir),
        "rules": lambda: doctor_node.rules(settings.rules, settings.overrides, labels),
        "listen": lambda: doctor_node.listening(settings.listen),
        "API server": lambda: _kube(settings, doors, node),
    }


def _pods(doors: Doors) -> Iterator[Finding]:
    if doors.api is not None:  # else nobody is told of pods
        yield from doctor_node.pod_files(doors.kubelet_root, doors.pods_log_root)


def _gpus(settings: AgentSettings, doors: Doors, node: Object | ApiError | None) -> Iterator[Finding]:
    bus = Bus(settings.sys_root).gpus()
    yield from on_the_bus(bus, settings.sys_root)
    if bus != {} or settings.expect_gpus is not None:
        yield from expectation(bus, settings.expect_gpus)
    if settings.no_nvml:
        yield Finding("NVML", "warning", "not asked, because of --no-nvml: GPUs are watched by the kernel log alone")
        return
    if _quiesced(node, doors.clock.wall()):
        yield Finding("NVML", "skipped", "not asked: the Node asks to keep away from the driver (quiesced, or it is "
                      "being upgraded)", "run doctor again when that is over")
        return
    doctor = Doctor(doors.driver, doors.clock, doors.call_patience, doors.maps)
    yield from Gpus(bus, settings.nvml_library, settings.sys_root, settings.proc_root,
                    poll_deadline=NvmlPace().deadline).check(doctor)


def _quiesced(node: Object | ApiError | None, wall: float) -> bool:
    if not isinstance(node, dict):
        return False
    metadata = node.get("metadata") or {}
    until = quiesced_until(metadata.get("annotations") or {}, metadata.get("labels") or {})
    return until is not None and wall < until


def _kube(settings: AgentSettings, doors: Doors, node: Object | ApiError | None) -> Iterator[Finding]:
    at = None
    if isinstance(doors.api, UserError):
        yield Finding("API server", "blind", str(doors.api), mistake=True)
    elif doors.api is None or node is None:
        yield Finding("API server", "skipped", "not asked, because of --no-kube: log and metrics only")
    else:
        yield doctor_kube.own_node(node, settings.node_name)
        if isinstance(node, dict) or node.status:
            found, at = doctor_kube.itself(doors.api, settings.node_name)
            yield from found
            yield from doctor_kube.access(doors.api, settings.node_name, settings.namespace)
            yield from doctor_kube.policies(doors.api)
    yield from doctor_node.clock(doors.kept(), doctor_kube.skew(at, doors.clock.wall))
