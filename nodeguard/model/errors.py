"""The small hierarchy of errors; foreign errors are translated into it once, at the adapter."""

from collections.abc import Sequence
from dataclasses import dataclass


class NodeguardError(Exception):
    """Root of everything nodeguard raises on purpose. ``str()`` is one plain sentence for people."""


class UserError(NodeguardError):
    """Somebody gave nodeguard something wrong: a flag, a file. Printed as one line, exit code 2."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One mistake in a file a person wrote. Lines and columns count from 1; 0 means the whole file."""

    file: str
    line: int
    column: int
    subject: str
    """Name of the rule (or section) that holds the mistake; empty for the file itself."""
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{where}: {self.subject}: {self.message}" if self.subject else f"{where}: {self.message}"


class ConfigError(UserError):
    """Every mistake found in a set of files, at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SourceError(NodeguardError):
    """A source cannot read its part of the world now; it will be tried again."""


class StoreError(NodeguardError):
    """The state directory cannot be written."""


class ApiError(NodeguardError):
    """The Kubernetes API answered with a failure, or not at all."""

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status; 0 when there was no answer."""
        self.retry_after = retry_after
        """Seconds the server asked to wait, if it did."""


class ApiUnavailable(ApiError):  # noqa: N818 # named as the API names the answer
    """No answer, 429 or 5xx: worth trying again later."""


class ApiConflict(ApiError):  # noqa: N818 # named as the API names the answer
    """409: the object changed since it was read. Read again, then retry."""


class ApiNotFound(ApiError):  # noqa: N818 # named as the API names the answer
    """404: the object does not exist."""


class ApiRefused(ApiError):  # noqa: N818 # named as the API names the answer
    """401, 403, 422 and other 4xx: the same request will be refused again."""


class ApiGone(ApiError):  # noqa: N818 # named as the API names the answer
    """410: the watch's resourceVersion is too old. List again."""
