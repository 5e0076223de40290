"""What doctor looks at on the node itself: kernel log, files, rules, port, clock."""

import fcntl
import http.client
import os
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nodeguard.app.doctor_finding import Finding
from nodeguard.config.options import Address
from nodeguard.config.rules import load_rules
from nodeguard.model.errors import ConfigError, SourceError
from nodeguard.model.rule import RuleSet
from nodeguard.sources.host_clock import WallClock
from nodeguard.sources.kmsg_device import FileKmsgDevice
from nodeguard.sources.pods import CHECKPOINT
from nodeguard.sources.pods_checkpoint import allotted

_KIB = 1024
_SMALL_RING = 256 * _KIB
"""Bytes below which a warning is due; most distributions compile 256 KiB in."""
_MOST_SKEW = 5.0
_PROBE_TIMEOUT = 1.0
_PROBES = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def kernel_log(path: Path, ring: int | None) -> Iterator[Finding]:
    """Whether the kernel log can be read. ``ring``: bytes that the kernel keeps of it, where it tells."""
    device = FileKmsgDevice(path)
    try:
        device.open()
        try:
            kind = path.stat().st_mode
            # what is read from a pipe is taken from the agent
            what = "is a pipe that can be opened" if stat.S_ISFIFO(kind) else _first_record(device)
        finally:
            device.close()
    except (SourceError, OSError) as error:
        yield Finding("kernel log", "blind", str(error), "without it no Xid is seen; see --kmsg")
        return
    yield Finding("kernel log", "ok", f"{path} {what}")
    if not stat.S_ISCHR(kind):
        yield Finding("kernel ring", "skipped", f"{path} is not the kernel's device, so its size says nothing")
    elif ring is None:
        yield Finding("kernel ring", "skipped", "the kernel does not tell this user the size of its log",
                      "run doctor as the agent runs: as root, in a privileged container")
    elif ring < _SMALL_RING:
        yield Finding("kernel ring", "warning", f"the kernel keeps only {ring // _KIB} KiB of its log: a flood of "
                      "messages overwrites records before anybody reads them (that is counted, not hidden)",
                      "boot the node with log_buf_len=1M")
    else:
        yield Finding("kernel ring", "ok", f"the kernel keeps {ring // _KIB} KiB of its log")


def _first_record(device: FileKmsgDevice) -> str:
    try:
        device.read()
    except BlockingIOError:
        return "can be read and is empty"
    except BrokenPipeError:  # overwritten between opening and reading: that is what a ring does
        return "can be read"
    return "can be read"


def facility(*, any_facility: bool) -> Iterator[Finding]:
    """Whether lines that programs wrote count as the kernel's."""
    if any_facility:
        yield Finding("facility", "warning", "lines that any program writes to the kernel log are believed: anybody on "
                      "this node can forge a fault", "leave out --kmsg-any-facility; it is for tests")
    else:
        yield Finding("facility", "ok", "only the kernel's own lines are believed")


def boot_id(proc_root: Path) -> Iterator[Finding]:
    """The identity of this boot, by which memory of another one is told apart."""
    path = proc_root / "sys/kernel/random/boot_id"
    try:
        yield Finding("boot ID", "ok", path.read_text().strip())
    except OSError as error:
        yield Finding("boot ID", "blind", f"{path} cannot be read: {error.strerror}; the agent does not start without "
                      "it", "check --proc-root", mistake=True)


def state_directory(path: Path) -> Iterator[Finding]:
    """Whether the agent can keep its state, and whether one does already. Changes nothing there."""
    remedy = "make it a directory that the agent may write, or give another --state-dir"
    if not path.exists():
        above = next(one for one in path.absolute().parents if one.exists())
        if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            yield Finding("state", "ok", f"{path} does not exist yet, and can be made")
        else:
            yield Finding("state", "blind", f"{path} does not exist, and cannot be made in {above}", remedy)
        return
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"\0" * _KIB)
    except OSError as error:
        yield Finding("state", "blind", f"{path} cannot be written: {error.strerror}", remedy)
        return
    user = _holder(path / "lock")
    yield Finding("state", "ok", f"{path} can be written" if user is None else f"{path} is in use by a running agent, "
                  f"pid {user}")


def _holder(lock: Path) -> str | None:
    try:
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(20).decode("ascii", "replace").strip() or "unknown"
    except OSError:
        return None
    return None


def rules(paths: Sequence[Path], overrides: Sequence[Path], labels: Mapping[str, str] | None) -> Iterator[Finding]:
    """Whether the rules load, and what overrides make of them. ``labels``: the Node's, None where they are unknown."""
    try:
        base = load_rules(paths)
        found = load_rules(paths, overrides=overrides, node_labels=labels or {}) if overrides else base
    except ConfigError as error:
        for problem in error.problems:
            yield Finding("rules", "blind", str(problem), "correct it; try it with nodeguard rules check", mistake=True)
        return
    yield Finding("rules", "ok", f"{len(found.rules)} rules, hash {found.hash}")
    if overrides:
        unsure = "" if labels is not None else "; those for certain nodes are left out, for the Node cannot be read"
        yield Finding("overrides", "ok", _changes(base, found) + unsure)


def _changes(base: RuleSet, found: RuleSet) -> str:
    now = {rule.name: rule.content_hash for rule in found.rules}
    off = [rule.name for rule in base.rules if rule.name not in now]
    changed = [rule.name for rule in base.rules if now.get(rule.name, rule.content_hash) != rule.content_hash]
    parts = [f"{word} {', '.join(names)}" for word, names in (("changed:", changed), ("off:", off)) if names]
    return "; ".join(parts) or "no rule is changed"


def pod_files(kubelet_root: Path, pods_log_root: Path) -> Iterator[Finding]:
    """Whether the pods on a faulty GPU can be told from what the kubelet writes."""
    path = kubelet_root / CHECKPOINT
    remedy = "mount the kubelet's directory into the agent's pod, and point the agent at it"
    try:
        given = allotted(path.read_bytes())
    except FileNotFoundError:
        if path.parent.is_dir():
            yield Finding("pods", "ok", "the kubelet has given out no device through device plugins")
        else:
            yield Finding("pods", "warning", f"{path.parent} cannot be seen: the pods on a GPU that is lost stay "
                          "unknown, and its fault counts for every accelerator pod of the node", remedy)
        return
    except (OSError, SourceError) as error:
        yield Finding("pods", "warning", f"{path}: {error}", remedy)
        return
    count = len({uid for uids in given.pods.values() for uid in uids})
    yield Finding("pods", "ok", f"the kubelet's checkpoint can be read: {len(given.pods)} GPUs given to {count} pods"
                  + ("" if given.complete else "; some of its entries do not tell which GPU they mean"))
    if not pods_log_root.is_dir():
        yield Finding("pod names", "warning", f"{pods_log_root} cannot be seen: pods are told by UID, without names",
                      "mount it into the agent's pod")


def listening(address: Address) -> Iterator[Finding]:
    """Whether the port is free, or an agent has it."""
    shown = f"{address.host}:{address.port}"
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
    except OSError as error:
        answer = _agent_at(address)
        if answer is not None:
            yield answer
        else:
            yield Finding("listen", "blind", f"{shown} cannot be used: {error.strerror or error}; the agent would not "
                          "start", "give another address with --listen, or stop what is there", mistake=True)
        return
    yield Finding("listen", "ok", f"{shown} is free")


def _agent_at(address: Address) -> Finding | None:
    connection = http.client.HTTPConnection(
        _PROBES.get(address.host, address.host), address.port, timeout=_PROBE_TIMEOUT)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        words = response.read(200).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if not (response.getheader("Server") or "").startswith("nodeguard"):
        return None
    if response.status == http.client.OK:
        return Finding("listen", "ok", f"an agent answers at {address.host}:{address.port}: {words}")
    return Finding("listen", "warning", f"the agent at {address.host}:{address.port} is not well: {words}",
                   "look at its log; the kubelet restarts it")


def clock(kept: WallClock | None, skew: float | None) -> Iterator[Finding]:
    """Whether the wall clock is right; ``skew``: seconds that it is ahead of the API server's, where known."""
    if kept is None:
        yield Finding("clock", "skipped", "the kernel does not tell how its clock is kept")
    elif not kept.synchronized:
        yield Finding("clock", "warning", "the wall clock is not synchronized: times that the agent tells may be wrong "
                      "(it judges by the time since boot, so no fault depends on it)", "run an NTP client on the node")
    else:
        yield Finding("clock", "ok", f"the wall clock is synchronized, at most {kept.max_error * 1000:.0f} ms wrong")
    if skew is not None and abs(skew) > _MOST_SKEW:
        direction = "ahead of" if skew > 0 else "behind"
        yield Finding("clock skew", "warning", f"the wall clock is {abs(skew):.0f} s {direction} the API server's",
                      "synchronize both; nodeguard.io/clear compares their times")
