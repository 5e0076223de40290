"""What outlives the process: one snapshot file in the state directory, replaced whole.

Node part and boot part share the file, so that cursor, faults and memory never disagree after a crash. The node part
belongs to the Node's UID and survives reboots; the boot part belongs to the boot ID as well.
"""

import contextlib
import fcntl
import json
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nodeguard.model.errors import StoreError, UserError

_VERSION = 1
_FILE = "state.json"
_LOCK = "lock"
_KEPT_ASIDE = 3  # files of each kind
_HEAD = re.compile(rb'\{"crc32":"([0-9a-f]{8})",')
_LARGEST = 64 * 1024 * 1024  # bytes; a snapshot is some hundred KiB


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the state directory holds for this node and this boot."""

    node: dict[str, object] = field(default_factory=dict)
    boot: dict[str, object] | None = None
    """None: nothing from this boot."""
    notes: tuple[str, ...] = ()
    """Sentences for people about what was set aside."""
    torn: bool = False
    """The file could not be trusted; what the Node says of itself is used instead."""
    node_uid: str = ""
    """The UID it was kept for; empty while the API server had never answered."""


class _TornError(Exception):
    """The file is not a whole snapshot of a version that is understood."""


class Store:
    """The state directory. One thread uses it.

    An empty ``node_uid`` means that the API server has not answered yet: then a stored UID counts as ours and is
    kept, and a snapshot stored without UID is adopted by the first one that comes.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / _FILE
        self._lock: int | None = None
        self._known_uid = ""
        self._saved = b""

    def lock(self) -> None:
        """Keep the directory to this process until :meth:`close` or its end.

        Raises UserError when another agent has it, StoreError when the directory cannot be written.
        """
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._error("locked", error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise UserError(
                f"the state directory {self._directory} is in use by another agent, pid {pid or 'unknown'}: "
                "stop that one, or give this one another --state-dir") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._lock = fd

    def close(self) -> None:
        """Give the directory free again."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def load(self, node_uid: str, boot_id: str) -> Loaded:
        """Read the snapshot. Raises StoreError when the directory cannot be read; a missing file is an empty one."""
        try:
            data = self._read()
        except FileNotFoundError:
            return Loaded()
        except OSError as error:
            raise self._error("read", error) from error
        try:
            snapshot = _decoded(data)
        except _TornError as error:
            return Loaded(notes=(self.set_aside("torn", str(error)),), torn=True)
        stored = str(snapshot["node_uid"])
        if stored and node_uid and stored != node_uid:
            return Loaded(notes=(self.set_aside("foreign", f"it belongs to the node with UID {stored}"),))
        self._known_uid = stored
        same_boot = bool(boot_id) and snapshot["boot_id"] == boot_id
        return Loaded(_part(snapshot, "node"), _part(snapshot, "boot") if same_boot else None, node_uid=stored)

    def save(self, node_uid: str, boot_id: str, node: Mapping[str, object], boot: Mapping[str, object]) -> None:
        """Replace the snapshot, on disk when this returns; nothing to do if it is equal to the last one saved.

        Raises StoreError when it cannot be written; the file before stays whole.
        """
        self._known_uid = node_uid or self._known_uid
        data = _encoded({"v": _VERSION, "node_uid": self._known_uid, "boot_id": boot_id, "node": node, "boot": boot})
        if data == self._saved:
            return
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._replace(data)
        except OSError as error:
            raise self._error("written", error) from error
        self._saved = data

    def _read(self) -> bytes:
        with self._file.open("rb") as file:
            return file.read(_LARGEST + 1)

    def _replace(self, data: bytes) -> None:
        new = self._file.with_suffix(".json.new")
        with new.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)
        # the rename itself is on disk only when the directory is
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def set_aside(self, kind: str, why: str) -> str:
        """Move the snapshot out of the way, keep the newest few of its kind, and say so."""
        prefix = f"{_FILE}.{kind}-"
        earlier = sorted(int(path.name.removeprefix(prefix)) for path in self._directory.glob(f"{prefix}*")
                         if path.name.removeprefix(prefix).isdecimal())
        aside = self._directory / f"{prefix}{earlier[-1] + 1 if earlier else 1}"
        try:
            self._file.replace(aside)
        except OSError as error:
            return f"the state file {self._file} is not used, for {why}; it could not be set aside: {error.strerror}"
        for number in earlier[: 1 - _KEPT_ASIDE]:
            with contextlib.suppress(OSError):
                (self._directory / f"{prefix}{number}").unlink()
        return f"the state file {self._file} is not used, for {why}; it was set aside as {aside.name}"

    def _error(self, deed: str, error: OSError) -> StoreError:
        return StoreError(f"the state directory {self._directory} cannot be {deed}: {error.strerror}; "
                          "make it a directory that the agent may write, or give another --state-dir")


def _encoded(snapshot: Mapping[str, object]) -> bytes:
    """The snapshot as one JSON object whose first key holds the CRC-32 of the rest."""
    rest = json.dumps(snapshot, sort_keys=True, separators=(",", ":")).encode()[1:] + b"\n"
    return b'{"crc32":"%08x",%s' % (zlib.crc32(rest), rest)


def _decoded(data: bytes) -> dict[str, object]:
    head = _HEAD.match(data)
    if len(data) > _LARGEST or head is None or int(head[1], 16) != zlib.crc32(data[head.end():]):
        raise _TornError("it is cut short or damaged")
    try:
        snapshot = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _TornError("it is not JSON") from error
    if snapshot.get("v") != _VERSION:
        raise _TornError("another version of nodeguard wrote it")
    kinds = {"node_uid": str, "boot_id": str, "node": dict, "boot": dict}
    if not all(isinstance(snapshot.get(key), kind) for key, kind in kinds.items()):
        raise _TornError("parts of it are missing")
    return dict(snapshot)


def _part(snapshot: Mapping[str, object], name: str) -> dict[str, object]:
    part = snapshot[name]
    return part if isinstance(part, dict) else {}
