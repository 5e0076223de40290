"""What a poll of a tree was answered, and the patch that makes a recorded tree answer the same."""

import errno
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from nodeguard.model.sample import Batch
from nodeguard.sources.polled import Poll
from nodeguard.sources.recording.tree import RecordedTree
from nodeguard.sources.tree import Tree

_T = TypeVar("_T", str, bool, tuple[str, ...])

_NOTES_LIMIT = 65536
"""Answers kept of one poll; a node's whole /sys/class/infiniband gives some thousand."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One question to a tree, by the name of its method, and what came back."""

    question: str
    path: str
    value: str | bool | tuple[str, ...] | None
    error: int = 0
    """The errno of a failure."""


class _Notes(threading.local):
    """Each poll runs in a thread of its own."""

    taken: list[Answer] | None = None


class NotingTree:
    """A :class:`nodeguard.sources.tree.Tree` that notes what it answers to a thread that asked for it."""

    def __init__(self, tree: Tree, *, below: str = "", beside: "NotingTree | None" = None) -> None:
        """``below``: what the recording puts before each path. ``beside``: the tree that notes for this one too."""
        self._tree, self._below = tree, below
        self._notes: _Notes = _Notes() if beside is None else beside._notes  # noqa: SLF001 # of its own class

    def begin(self) -> None:
        """Note what this thread asks from now on."""
        self._notes.taken = []

    def end(self) -> tuple[Answer, ...]:
        """Stop noting; what was noted."""
        taken, self._notes.taken = self._notes.taken or [], None
        return tuple(taken)

    def read(self, path: str) -> str:
        """See :class:`nodeguard.sources.tree.Tree`."""
        return self._ask("read", path, self._tree.read)

    def names(self, path: str) -> tuple[str, ...]:
        """See :class:`nodeguard.sources.tree.Tree`."""
        return self._ask("names", path, self._tree.names)

    def link(self, path: str) -> str:
        """See :class:`nodeguard.sources.tree.Tree`."""
        return self._ask("link", path, self._tree.link)

    def exists(self, path: str) -> bool:
        """See :class:`nodeguard.sources.tree.Tree`."""
        return self._ask("exists", path, self._tree.exists)

    def _ask(self, question: str, path: str, ask: Callable[[str], _T]) -> _T:
        try:
            value = ask(path)
        except OSError as error:
            self._note(Answer(question, self._below + path, None, error.errno or errno.EIO))
            raise
        self._note(Answer(question, self._below + path, value))
        return value

    def _note(self, answer: Answer) -> None:
        taken = self._notes.taken
        if taken is not None and len(taken) < _NOTES_LIMIT:
            taken.append(answer)


class NotingPoll:
    """A :class:`nodeguard.sources.polled.Poll` that keeps, of each poll, when it began and what it was answered."""

    def __init__(self, poll: Poll, tree: NotingTree) -> None:
        self._poll, self._tree = poll, tree
        self.polls: deque[tuple[float, tuple[Answer, ...]]] = deque(maxlen=8)

    @property
    def name(self) -> str:
        """See :class:`nodeguard.sources.polled.Poll`."""
        return self._poll.name

    @property
    def period(self) -> float:
        """See :class:`nodeguard.sources.polled.Poll`."""
        return self._poll.period

    def poll(self, now: float) -> Batch:
        """See :class:`nodeguard.sources.polled.Poll`."""
        self._tree.begin()
        try:
            return self._poll.poll(now)
        finally:
            self.polls.append((now, self._tree.end()))


def patch_for(answers: Iterable[Answer], tree: RecordedTree) -> dict[str, Any]:
    """What a ``sysfs`` entry must say so that ``tree`` gives these answers; it is said to ``tree`` too."""
    patch: dict[str, Any] = {}
    for answer in answers:
        for path, value in _changes(answer, tree):
            patch.pop(path, None)  # the newest word comes last, as it is applied
            patch[path] = value
            tree.patch({path: value}, _never)
    return patch


def _never(message: str) -> None:
    raise AssertionError(message)


def _changes(answer: Answer, tree: RecordedTree) -> Iterator[tuple[str, Any]]:
    told = _answer(answer.question, answer.path, tree)
    if told == answer or not _is_below(answer.path):
        return
    if isinstance(answer.value, tuple):
        yield from _listing(answer.path, answer.value, told.value if isinstance(told.value, tuple) else ())
    else:
        yield answer.path, _value(answer)


def _answer(question: str, path: str, tree: RecordedTree) -> Answer:
    ask: Callable[[str], Any] = getattr(tree, question)
    try:
        return Answer(question, path, ask(path))
    except OSError as error:
        return Answer(question, path, None, error.errno or errno.EIO)


def _listing(path: str, names: tuple[str, ...], told: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if not names or not told:
        yield path, {"directory": True}
    yield from ((f"{path}/{name}", None) for name in told if name not in names)
    yield from ((f"{path}/{name}", "") for name in names if name not in told)


def _value(answer: Answer) -> Any:
    if answer.error:
        if answer.error in (errno.ENOENT, errno.ENOTDIR):
            return None
        is_directory = answer.error in (errno.EISDIR, errno.EINVAL)
        return {"directory": True} if is_directory else {"error": errno.errorcode.get(answer.error, "EIO")}
    if isinstance(answer.value, bool):
        return "" if answer.value else None
    return {"link": answer.value} if answer.question == "link" else answer.value


def _is_below(path: str) -> bool:
    return not path.startswith("/") and ".." not in path.split("/")
