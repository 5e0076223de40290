"""The sources that look at the host, as the settings want them."""

from collections.abc import Iterator
from functools import partial

from nodeguard.config.settings import AgentSettings
from nodeguard.model.clock import Clock
from nodeguard.sources.host import HostPoll, Machine
from nodeguard.sources.host_clock import wall_clock
from nodeguard.sources.host_disks import DisksPoll
from nodeguard.sources.host_kubelet import RUNTIME_SOCKETS, KubeletPoll, endpoint_of
from nodeguard.sources.host_memory import available_ratio
from nodeguard.sources.polled import Poll
from nodeguard.sources.tree import Tree


def host_polls(settings: AgentSettings, sys: Tree, proc: Tree, clock: Clock) -> Iterator[Poll]:
    """One for what the kernel tells at once, one for disks, one for kubelet and runtime: none can hide another."""
    root = settings.proc_root
    machine = Machine(memory=partial(available_ratio, str(root)), clock=wall_clock)
    yield HostPoll(sys, proc, machine, clock)
    yield DisksPoll(proc, root / "1/root", settings.host_path)
    runtime = settings.container_runtime
    sockets = RUNTIME_SOCKETS if runtime is None else (runtime,) if runtime else ()
    endpoint = endpoint_of(settings.kubelet_healthz)
    if endpoint is not None or sockets:
        yield KubeletPoll(root, endpoint, sockets)
