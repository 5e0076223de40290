"""Refusals, told as the Status objects that Kubernetes answers with (apimachinery meta/v1 Status)."""

from typing import Any

REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed", 409: "Conflict",
    410: "Expired", 415: "UnsupportedMediaType", 422: "Invalid", 429: "TooManyRequests", 500: "InternalError",
    503: "ServiceUnavailable", 504: "Timeout",
}


class Refusal(Exception):  # noqa: N818 - not every refusal is an error
    """The request is answered with this HTTP status and a Status object."""

    def __init__(
        self, status: int, message: str, *, reason: str = "", details: dict[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason or REASONS.get(status, "")
        self.details = dict(details or {})
        self.retry_after = retry_after
        """Seconds for the Retry-After header."""
        if retry_after is not None:
            self.details["retryAfterSeconds"] = retry_after

    def body(self) -> dict[str, Any]:
        """The Status object."""
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
                "reason": self.reason, "details": self.details, "code": self.status}
        return {key: value for key, value in body.items() if value or key == "metadata"}


def success(details: dict[str, Any]) -> dict[str, Any]:
    """The Status object of a deed that returns no object."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def expired(version: int, oldest: int) -> Refusal:
    """The version asked for is no longer in the history."""
    return Refusal(410, f"too old resource version: {version} ({oldest})")
