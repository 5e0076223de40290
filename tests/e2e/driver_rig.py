"""An agent as a process above a simulated driver, whose calls can be made to hang."""

from __future__ import annotations

import signal
from pathlib import Path

from .agents import AgentProcess, Rig


class DriverRig(Rig):
    """A rig whose agents read NVML: real pynvml, and below it a simulated driver in the agent's own process."""

    hangs_at_start = False
    """Whether every call hangs before the agent makes its first."""

    def arguments(self) -> list[str]:
        """See :class:`Rig`."""
        return [word for word in super().arguments() if word != "--no-nvml"]

    def start(self, *more: str) -> AgentProcess:
        """See :class:`Rig`."""
        hang = ("hang",) if self.hangs_at_start else ()
        program = ("bench.simulated_agent", ",".join(self.hardware.uuids), ",".join(self.hardware.slots), *hang)
        agent = AgentProcess(*self.arguments(), *more, log=self.log, program=program)
        self._running = [agent]
        return agent


def hang_every_call(agent: AgentProcess) -> None:
    """From now on no call to the driver comes back."""
    agent.signal(signal.SIGUSR1)


def release_every_call(agent: AgentProcess) -> None:
    """The driver answers again."""
    agent.signal(signal.SIGUSR2)


def thread_count(agent: AgentProcess) -> int:
    """Threads of its process now."""
    status = Path(f"/proc/{agent.pid}/status").read_text()
    return int(status.partition("Threads:")[2].split()[0])
