"""Threads for calls that may never return: each is one thread, and while it is out nothing more is given to it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

Job = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job returned, or the error it raised."""

    worker: str
    value: object
    error: Exception | None = None


class Worker:
    """One daemon thread that does one job at a time.

    A job that hangs keeps its thread and nothing else: the process can end, and no second thread is started for it.
    """

    def __init__(self, name: str, done: Callable[[Outcome], None]) -> None:
        """``done`` is called on the worker's thread with every outcome."""
        self.name = name
        self._done = done
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.since: float | None = None
        """When the job at hand was given, by the giver's clock; None while it is idle."""

    def give(self, job: Job, now: float) -> None:
        """Give it a job. Only to an idle worker."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"worker-{self.name}", daemon=True)
            self._thread.start()
        self.since = now
        self._jobs.put(job)

    def took_back(self) -> None:
        """Its outcome was taken: it is idle again."""
        self.since = None

    def end(self) -> None:
        """End the thread when its job is done."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                outcome = Outcome(self.name, job())
            except Exception as error:  # noqa: BLE001 - isolates one call: whatever it raises is its outcome
                outcome = Outcome(self.name, None, error)
            self._done(outcome)


class Crew:
    """Workers by name, and the outcomes that nobody has taken yet."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._outcomes: list[Outcome] = []
        self._awaited: set[str] = set()
        """Workers that :meth:`collect` waits for; those that it waited for in vain are left behind."""
        self._hurried = False
        self._changed = threading.Condition()

    def idle(self, name: str) -> bool:
        """Whether a worker of this name could take a job."""
        worker = self._workers.get(name)
        return worker is None or worker.since is None

    def give(self, name: str, job: Job, now: float) -> None:
        """Give the worker called ``name`` a job; it is made when it is needed first."""
        worker = self._workers.get(name)
        if worker is None:
            worker = self._workers[name] = Worker(name, self._take)
        self._awaited.add(name)
        worker.give(job, now)

    def _take(self, outcome: Outcome) -> None:
        with self._changed:
            self._outcomes.append(outcome)
            self._changed.notify_all()

    def out(self) -> dict[str, float]:
        """Jobs that have not answered: worker → when they were given."""
        return {name: worker.since for name, worker in self._workers.items() if worker.since is not None}

    def late(self, name: str, given_before: float) -> bool:
        """Whether a job that was given to ``name`` by then has not answered. From any thread."""
        worker = self._workers.get(name)
        since = None if worker is None else worker.since
        return since is not None and since <= given_before

    def collect(self, timeout: float) -> list[Outcome]:
        """Outcomes since the last call, late ones of earlier jobs among them.

        Waits until every job given since the last call has answered, at most ``timeout`` seconds: a job that hangs
        is waited for once, and delays nobody afterwards.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._hurried or self._all_answered(), timeout)
            found, self._outcomes, self._hurried = self._outcomes, [], False
        self._awaited.clear()
        for outcome in found:
            self._workers[outcome.worker].took_back()
        return found

    def _all_answered(self) -> bool:
        return self._awaited <= {outcome.worker for outcome in self._outcomes}

    def hurry(self) -> None:
        """End the wait of :meth:`collect`, or the next one."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def dismiss(self) -> None:
        """End every thread that is not hung."""
        for worker in self._workers.values():
            worker.end()
