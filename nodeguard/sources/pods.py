"""Pods that use a faulty GPU: from its processes, and from what the kubelet gave out.

Both are asked, because neither says all. A GPU's fault often kills the process before anybody looks, while the pod
still holds the GPU and is about to start another; and NVML knows nothing of a GPU that is lost. The other way round, a
GPU that no device plugin gave out (DRA, the host's own programs) has processes and no entry. An entry whose pod has
left the node, which the kubelet forgets only at its next allotment, is passed over.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from nodeguard.model.clock import Clock
from nodeguard.model.device import Device, is_within, kind_of, parent_of
from nodeguard.model.errors import SourceError
from nodeguard.model.sample import Batch, PodRef, Pods, SourceState
from nodeguard.sources.pods_cgroup import pod_uid
from nodeguard.sources.pods_checkpoint import Allotted, allotted
from nodeguard.sources.workers import Crew
from nodeguard.vendors.nvidia.nvml_device import Gpu
from nodeguard.vendors.nvidia.nvml_errors import NvmlError
from nodeguard.vendors.nvidia.nvml_users import Users

KUBELET_ROOT = Path("/var/lib/kubelet")
PODS_LOG_ROOT = Path("/var/log/pods")
CHECKPOINT = "device-plugins/kubelet_internal_checkpoint"

_LARGEST = 16 * 1024 * 1024  # bytes of a checkpoint; one entry with its AllocResp is about 1 KiB
_REFRESH = 30.0
_AGAIN = 1.0  # seconds until the next look while a call is out
_DEADLINE = 0.02
"""Seconds that an answer waits for NVML. Well below what the agent waits for it (nodeguard/app/firstpods.py): of a GPU
that hangs the kubelet's word must come in time."""
_NO_INDEX = -1

Emit = Callable[[Batch], None]
UsersOf = Mapping[str, Users | None]
"""GPU's UUID → what computes on it; absent or None: NVML does not tell."""


class Driver(Protocol):
    """What is asked of :class:`nodeguard.vendors.nvidia.nvml.Nvml`."""

    def users(self, gpu: Gpu) -> Users | None:
        """What computes on this GPU and its MIG instances; None where the driver does not tell."""
        ...


class PodFinder:
    """The files of a node that lead from GPUs to pods."""

    def __init__(self, proc_root: Path, kubelet_root: Path = KUBELET_ROOT, pods_log_root: Path = PODS_LOG_ROOT) -> None:
        self._proc, self._kubelet, self._logs = proc_root, kubelet_root, pods_log_root
        self.malformed = 0
        """Entries of the newest checkpoint that could not be read."""

    def pods_of(self, devices: Iterable[Device], users: UsersOf) -> dict[Device, tuple[PodRef, ...]]:
        """Pods on each device, by UID. A device that is not a key is unknown.

        A GPU has the pods of all its MIG instances. An instance has those that the kubelet gave it and those whose
        processes NVML places in it; where neither tells of it, all of its GPU. A device is known to be without pods
        only where every process that NVML lists, if any, is placed and the host's own, and the checkpoint could be
        read whole.
        """
        given = self._allotted()
        found: dict[Device, set[str]] = {}
        for device in devices:
            known = self._uids(device, given, users.get(parent_of(device).partition("/")[2]))
            if known is not None:
                found[device] = known
        names = self._names() if any(found.values()) else {}
        return {device: tuple(names.get(uid) or PodRef(uid) for uid in sorted(uids)) for device, uids in found.items()}

    def _uids(self, device: Device, given: Allotted | None, users: Users | None) -> set[str] | None:
        held, running = _held(device, given, users), users.processes if users is not None else ()
        groups = [self._cgroup(one.pid) for one in running if is_within(one.device, device)]
        held |= {uid for group in groups if group is not None and (uid := pod_uid(group)) is not None}
        vague = any(one.device != device and is_within(device, one.device) for one in running)
        if held or (users is not None and None not in groups and not vague and _all_placed(given, users)):
            return held
        return None if device == parent_of(device) else self._uids(parent_of(device), given, users)

    def _cgroup(self, pid: int) -> str | None:
        """None: the process has ended, or the agent is not in the host's PID namespace."""
        try:
            return (self._proc / str(pid) / "cgroup").read_text(errors="replace")
        except OSError:
            return None

    def _allotted(self) -> Allotted | None:
        """None: the kubelet's files cannot be seen. Without device plugins it keeps no checkpoint, and gave nothing."""
        path = self._kubelet / CHECKPOINT
        try:
            with path.open("rb") as file:
                given = allotted(file.read(_LARGEST))
        except FileNotFoundError:
            return Allotted() if path.parent.is_dir() else None
        except (OSError, SourceError):
            return None
        self.malformed = given.malformed
        here = self._here()
        if here is None:
            return given
        return replace(given, pods={device: uids & here for device, uids in given.pods.items()},
                       instances={uuid: uids & here for uuid, uids in given.instances.items()})

    def _here(self) -> frozenset[str] | None:
        """UIDs of pods that the kubelet still keeps a directory for."""
        try:
            return frozenset(path.name for path in (self._kubelet / "pods").iterdir())
        except OSError:
            return None

    def _names(self) -> dict[str, PodRef]:
        """The kubelet keeps each pod's logs in ``<namespace>_<name>_<uid>`` (pkg/kubelet/kuberuntime/helpers.go)."""
        try:
            names = [path.name.split("_") for path in self._logs.iterdir()]
        except OSError:
            return {}
        return {parts[2]: PodRef(parts[2], parts[0], parts[1]) for parts in names if len(parts) == 3}


def _held(device: Device, given: Allotted | None, users: Users | None) -> set[str]:
    """UIDs of the pods that the kubelet gave a device, or a part of it."""
    if given is None:
        return set()
    instances = {} if users is None else users.instances or {}
    named = ((one, given.instances.get(uuid, frozenset())) for uuid, one in instances.items())
    return {uid for one, uids in (*given.pods.items(), *named) if is_within(one, device) for uid in uids}


def _all_placed(given: Allotted | None, users: Users) -> bool:
    """Whether a device that the kubelet gave nobody can be told from one that it gave somebody."""
    return given is not None and given.complete and (users.instances is not None or not given.instances)


class PodsSource:
    """Tells which pods use the faulty GPUs, as soon as there are other ones, and every 30 s while they are faulty.

    One thread calls :meth:`run`; NVML is asked in a worker a GPU, so that one which hangs delays everything else by
    20 ms at most. What was known of a device is kept while it cannot be asked: a fault that stays must not grow from
    its GPU's pods to the node's.
    """

    name = "pods"

    def __init__(self, driver: Driver, finder: PodFinder, clock: Clock, *, deadline: float = _DEADLINE,
                 hangs: Callable[[str], bool] = lambda _uuid: False) -> None:
        """``hangs`` says of a GPU, by UUID, that calls on it are known to hang: another one would cost a thread."""
        self._driver, self._finder, self._clock, self._deadline = driver, finder, clock, deadline
        self._hangs = hangs
        self._crew = Crew()
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._wanted: frozenset[Device] = frozenset()
        self._known: dict[Device, tuple[PodRef, ...]] = {}
        self._told: Mapping[Device, tuple[PodRef, ...]] | None = None
        self._malformed = 0

    def ask(self, devices: Iterable[Device]) -> None:
        """These devices are faulty now, and no others. From any thread; other devices than GPUs are passed over."""
        wanted = frozenset(device for device in devices if kind_of(device) == "gpu")
        with self._lock:
            if wanted == self._wanted:
                return
            self._wanted = wanted
        self._asked.set()

    def wake(self) -> None:
        """Make :meth:`run` look at its ``stop``."""
        self._asked.set()

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Answer until ``stop`` is set."""
        self._told = None
        emit(Batch(source=self.name, facts=(SourceState(up=True),)))
        while not stop.is_set():
            self._clock.wait(self._asked, self.pause())
            if not stop.is_set():
                self.turn(emit)
        self._crew.dismiss()

    def pause(self) -> float | None:
        """Seconds until the next look that nobody has to ask for."""
        with self._lock:
            wanted = self._wanted
        return None if not wanted else _AGAIN if self._crew.out() else _REFRESH

    def turn(self, emit: Emit) -> None:
        """One look. A Batch follows when somebody asked, which says that this is all there is, or something changed."""
        asked = self._asked.is_set()
        self._asked.clear()
        with self._lock:
            wanted = self._wanted
        found = self._finder.pods_of(wanted, self._users(wanted)) if wanted else {}
        self._known = {device: pods for device, pods in {**self._known, **found}.items() if device in wanted}
        if asked or self._known != self._told:
            self._told = self._known
            emit(Batch(source="agent", facts=(Pods(self._known, wanted),), counts=self._counts()))

    def _users(self, devices: Iterable[Device]) -> UsersOf:
        uuids = {parent_of(device).partition("/")[2] for device in devices}
        now = self._clock.boot()
        for uuid in sorted(uuids):
            if self._crew.idle(uuid) and not self._hangs(uuid):
                # the UUID is what a GPU is known by; where it sits does not matter here
                self._crew.give(uuid, partial(self._driver.users, Gpu(_NO_INDEX, uuid, None, "")), now)
        answers: dict[str, Users | None] = {}
        for outcome in self._crew.collect(self._deadline):
            if outcome.error is not None and not isinstance(outcome.error, NvmlError):
                raise outcome.error
            answers[outcome.worker] = outcome.value if isinstance(outcome.value, Users) else None
        return answers

    def _counts(self) -> Mapping[str, int]:
        new = self._finder.malformed - self._malformed
        self._malformed = self._finder.malformed
        return {"pods_checkpoint_malformed_total": new} if new > 0 else {}
