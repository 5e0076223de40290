"""Faults to inject while the driver runs: return codes and calls that do not come back."""

import re
import threading
from typing import Self

from pynvml import NVML_ERROR_GPU_IS_LOST, NVML_SUCCESS

_EVERY = ""
_OK = int(NVML_SUCCESS)
_VERSION = re.compile(r"(?:_v\d+|WithFlags)\Z")


def plain(function: str) -> str:
    """A function's name without its version, so that a fault need not know which one pynvml calls."""
    return _VERSION.sub("", function)


class Hang:
    """Calls that block until :meth:`release`. As a context manager it is released on leaving."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._entered = threading.Condition()
        self._stuck = 0

    def block(self) -> None:
        """What a call does: stay until released."""
        if self._free.is_set():
            return
        with self._entered:
            self._stuck += 1
            self._entered.notify_all()
        self._free.wait()
        with self._entered:
            self._stuck -= 1
            self._entered.notify_all()

    @property
    def stuck(self) -> int:
        """Calls that are blocked now."""
        with self._entered:
            return self._stuck

    def wait_stuck(self, calls: int = 1, timeout: float = 5.0) -> bool:
        """Wait until so many calls are blocked; False: not within ``timeout`` seconds."""
        with self._entered:
            return self._entered.wait_for(lambda: self._stuck >= calls, timeout)

    def release(self) -> None:
        """Let every blocked call go on, and block no more."""
        self._free.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Faults:
    """Faults of one GPU, or of the whole driver. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._codes: dict[str, int] = {}
        self._hangs: dict[str, Hang] = {}

    def fail(self, function: str, code: int) -> None:
        """From now on ``function`` (a C name, with or without version) returns ``code``."""
        with self._lock:
            self._codes[plain(function)] = code

    def fail_all(self, code: int) -> None:
        """From now on every function returns ``code``."""
        with self._lock:
            self._codes[_EVERY] = code

    def lose(self, code: int = NVML_ERROR_GPU_IS_LOST) -> None:
        """The GPU falls off the bus as NVML tells it: every call on it, its handle too, returns ``code``."""
        self.fail_all(code)

    def heal(self, function: str | None = None) -> None:
        """End the failing of one function, or of all; blocked calls are released."""
        with self._lock:
            names = [*self._codes, *self._hangs] if function is None else [plain(function)]
            hangs = [self._hangs.pop(name) for name in names if name in self._hangs]
            for name in names:
                self._codes.pop(name, None)
        for hang in hangs:
            hang.release()

    def hang(self, function: str | None = None) -> Hang:
        """From now on ``function``, or every call, blocks until the returned Hang is released."""
        name = _EVERY if function is None else plain(function)
        with self._lock:
            return self._hangs.setdefault(name, Hang())

    def check(self, function: str) -> int:
        """What a call meets before it does its work: it may block here. The code to return, or success."""
        name = plain(function)
        with self._lock:
            hangs = [self._hangs[one] for one in (_EVERY, name) if one in self._hangs]
        for hang in hangs:
            hang.block()
        with self._lock:
            return self._codes.get(name, self._codes.get(_EVERY, _OK))

    def forget(self, code: int) -> None:
        """End the failing of every function that returns ``code``."""
        with self._lock:
            self._codes = {name: found for name, found in self._codes.items() if found != code}

    def release_all(self) -> None:
        """Let every blocked call go on."""
        with self._lock:
            hangs, self._hangs = list(self._hangs.values()), {}
        for hang in hangs:
            hang.release()
