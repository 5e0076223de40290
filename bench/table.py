"""The table that the benchmarks print."""

from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """One figure."""

    what: str
    figure: float | None
    """None: it could not be measured; ``note`` says why."""
    unit: str
    budget: float | None = None
    note: str = ""


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that ``share`` of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * round(share * 1000) // 1000))
    return ordered[rank - 1]


def show(rows: Sequence[Row]) -> str:
    """The table as text."""
    head = ("what", "figure", "budget", "of budget", "note")
    body = [(row.what, "-" if row.figure is None else f"{row.figure:,.1f} {row.unit}",
             "" if row.budget is None else f"{row.budget:,.0f} {row.unit}",
             "" if row.budget is None or row.figure is None else f"{row.figure / row.budget:.2f}", row.note)
            for row in rows]
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
             for line in (head, *body))
    return "\n".join(lines)
