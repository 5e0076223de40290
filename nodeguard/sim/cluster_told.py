"""What the loop tells of its work, kept for a story that waits for it."""

import threading
from collections.abc import Callable

from nodeguard.remediation.happenings import Happening


class Told:
    """Every happening so far, oldest first. Filled on the loop's thread, read on another."""

    def __init__(self) -> None:
        self._all: list[Happening] = []
        self._changed = threading.Condition()

    def tell(self, happening: Happening) -> None:
        """Take one."""
        with self._changed:
            self._all.append(happening)
            self._changed.notify_all()

    def first(self, wanted: Callable[[Happening], bool], seconds: float) -> Happening | None:
        """The first that is as wanted, told already or within so many seconds; None: none was."""
        def find() -> Happening | None:
            return next(filter(wanted, self._all), None)

        with self._changed:
            return self._changed.wait_for(find, seconds)

    @property
    def trouble(self) -> str:
        """What the loop waits for, or could not do last, as the end of a sentence; empty: nothing."""
        with self._changed:
            found = [one.text for one in self._all if one.what in ("failed", "waits", "held") and one.text]
        return f"; the loop says: {found[-1]}" if found else ""
