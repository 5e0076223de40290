"""What doctor finds out: one line a check."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from nodeguard.model.clock import Clock
from nodeguard.sources.workers import Crew

Verdict = Literal["ok", "warning", "blind", "skipped"]
"""``blind``: something that the agent should see or do here, it cannot. ``skipped``: not asked, or not evaluated."""

EXIT_FINE, EXIT_BLIND, EXIT_MISTAKE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, in sentences for people."""

    check: str
    """What was looked at, in one or two words."""
    verdict: Verdict
    says: str
    """How it is."""
    do: str = ""
    """What to do about it; empty when there is nothing to do."""
    mistake: bool = False
    """A person gave something wrong, so that the agent would not start."""


Check = Callable[[], Iterable[Finding]]


def examine(checks: Mapping[str, Check], clock: Clock, patience: float) -> list[Finding]:
    """Run every check at once, each in a thread of its own, and give what they found in the order of ``checks``.

    One that hangs, as a dead file system makes it, or that fails in a way nobody thought of, costs only itself.
    """
    crew = Crew()
    for name, check in checks.items():
        crew.give(name, lambda check=check: list(check()), clock.boot())  # type: ignore[misc]
    answers = {outcome.worker: outcome for outcome in crew.collect(patience)}
    crew.dismiss()
    found: list[Finding] = []
    for name in checks:
        outcome = answers.get(name)
        if outcome is None:
            found.append(Finding(name, "blind", f"no answer within {patience:g} s",
                                 "look at the kernel log for tasks that hang, and at network file systems"))
        elif outcome.error is not None:
            words = " ".join(f"{type(outcome.error).__name__}: {outcome.error}".split())
            found.append(Finding(name, "blind", f"the check itself failed: {words}",
                                 "please report this with nodeguard's version"))
        elif isinstance(outcome.value, list):
            found += outcome.value
    return found


def exit_code(findings: Iterable[Finding]) -> int:
    """2: a person's mistake is among them, else 1: a blind spot is, else 0."""
    worst = EXIT_FINE
    for one in findings:
        worst = max(worst, EXIT_MISTAKE if one.mistake else EXIT_BLIND if one.verdict == "blind" else EXIT_FINE)
    return worst
