"""Times in annotations, which whoever may write the object may write: Unix seconds that can be written down again."""

_LAST = float(2**35)
"""In the year 3058."""


def moment(value: object) -> float:
    """The time. ValueError: no number, or no time that a clock can mean."""
    try:
        at = float(value)  # type: ignore[arg-type] # that is the question
    except (TypeError, OverflowError) as error:
        raise ValueError(f"no time: {value!r:.40}") from error
    if not 0 <= at < _LAST:
        raise ValueError(f"no time: {at}")
    return at
