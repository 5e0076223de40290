"""Notice that files on disk changed and load them again; what is wrong with them is told once and changes nothing."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from nodeguard.config.files import yaml_files
from nodeguard.model.errors import ConfigError

T = TypeVar("T")

_LINK = "..data"
"""The link that the kubelet swaps when a ConfigMap changes (kubernetes pkg/volume/util/atomic_writer.go)."""
_TRIES = 3


class Reloader(Generic[T]):
    """Watches files and directories by looking, once per :meth:`poll`.

    Guarantees: every change of content is loaded within one poll, whatever its size and time stamps; the same
    content is loaded once; content that changes while it is read is read again. A mount with ``subPath``
    never changes, so there is nothing to notice.
    """

    def __init__(self, load: Callable[[], T], paths: Sequence[Path]) -> None:
        self._load = load
        self._paths = tuple(paths)
        self._signature: tuple[object, ...] | None = None
        self._content = ""

    def poll(self) -> T | ConfigError | None:
        """The new set, or what is wrong with it, or None when nothing changed. The first poll always loads."""
        outcome: T | ConfigError | None = None
        for _ in range(_TRIES):
            signature = self._look()
            if signature == self._signature:
                return None
            content = self._read()
            if content == self._content:
                self._signature = signature
                return None
            outcome = self._outcome()
            if self._look() == signature:
                self._signature, self._content = signature, content
                return outcome
        return outcome

    def _outcome(self) -> T | ConfigError:
        try:
            return self._load()
        except ConfigError as error:
            return error

    def _look(self) -> tuple[object, ...]:
        return tuple(_signature(path) for path in self._paths)

    def _read(self) -> str:
        found = hashlib.sha256()
        for path in self._paths:
            for file in _files(path):
                found.update(f"{file}\0".encode(errors="surrogateescape"))
                found.update(hashlib.sha256(_bytes(file)).digest())
        return found.hexdigest()


def _signature(path: Path) -> tuple[object, ...]:
    """What changes whenever the content may have: the kubelet's link, else each file's stat."""
    try:
        return ("link", str((path / _LINK).readlink()))
    except OSError:
        return tuple(_stats(path))


def _stats(path: Path) -> Iterator[tuple[object, ...]]:
    for file in _files(path):
        try:
            stat = file.stat()
        except OSError as error:
            yield (str(file), error.errno)
        else:
            yield (str(file), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def _files(path: Path) -> list[Path]:
    try:
        return yaml_files(path)
    except OSError:
        return [path]


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        return f"unreadable {error.errno}".encode()
