"""What is remembered of one node between two decisions, and how a command reads."""

from dataclasses import dataclass

from nodeguard.remediation.machine import Begin, Clear, Command, MoveOut, Write


@dataclass(slots=True)
class Case:
    """What may be forgotten with the process."""

    busy: bool = False
    clean_since: float | None = None
    waits: str = ""
    person: str = ""
    why: str = ""
    """What was told last of what it waits for."""
    would: str = ""
    """What a dry run told last."""


def words_for(command: Command) -> str:
    """The command, for people."""
    match command:
        case Begin(record):
            return f"take a budget slot and drain the node for {', '.join(record.rules)}"
        case Write(record):
            return f"go on to {record.state}"
        case MoveOut(pods):
            return f"make {len(pods)} pods leave: {', '.join(pod.key for pod in pods[:5])}"
        case Clear(outcome):
            return f"remove nodeguard's marks: {outcome}"
