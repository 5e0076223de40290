"""One replica of an election as a process that can be paused: while it leads, it writes its mark into the ledger.

``python -m tests.e2e.elector KUBECONFIG NAMESPACE LEASE IDENTITY`` prints a line for each mark that was acknowledged,
and ends on SIGTERM with the Lease given back.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from nodeguard.kube.client import KubeClient
from nodeguard.kube.election import LeaderLease
from nodeguard.model.clock import SystemClock
from nodeguard.model.errors import ApiError

if TYPE_CHECKING:
    from nodeguard.kube.api import Object

_PAUSE = 0.05


def main(kubeconfig: str, namespace: str, name: str, identity: str) -> None:
    """Take part until SIGTERM."""
    lease = LeaderLease(KubeClient.from_kubeconfig(Path(kubeconfig)), namespace, name, identity, SystemClock())
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    election = threading.Thread(target=lease.run, args=(stop,))
    election.start()
    number = 0
    while not stop.wait(_PAUSE):
        if lease.leading():
            number += 1
            _write(lease, f"{identity}{number}")
    election.join()


def _write(lease: LeaderLease, mark: str) -> None:
    def add(ledger: Object) -> Object:
        return {"marks": [*ledger.get("marks", ()), mark]}

    try:
        lease.update_ledger(add)
    except ApiError as error:
        print("failed", mark, error, file=sys.stderr, flush=True)  # noqa: T201  # for the test's report
    else:
        print(mark, flush=True)  # noqa: T201  # the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
