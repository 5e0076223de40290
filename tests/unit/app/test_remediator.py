"""The loop's process against the embedded API server: it leads, acts, reloads its policy, and gives the Lease back."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any, Self
from urllib.request import ProxyHandler, build_opener

import pytest

from nodeguard.app.remediator import LEASE_NAME, Remediator
from nodeguard.config.options import Address
from nodeguard.config.remediate import RemediateSettings
from nodeguard.kube.client import KubeClient
from nodeguard.model.clock import SystemClock
from nodeguard.model.errors import ConfigError, NodeguardError
from nodeguard.remediation.happenings import Happening
from nodeguard.sim.apiserver import EmbeddedApiServer
from nodeguard.sinks.log import configure

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/nodeguard/leases/{LEASE_NAME}"
INCIDENTS = "/api/v1/namespaces/nodeguard/configmaps/nodeguard-incidents"
NODE = "/api/v1/nodes/gpu-7"
POLICY = "apiVersion: nodeguard.io/v1\nkind: RemediationPolicy\n"
FAULT = {"rule": "gpu-lost", "hash": "0123456789abcdef", "device": "gpu/GPU-a", "severity": "critical",
         "action": "reset_gpu", "effect": "evict", "scope": "node", "since": "2026-01-01T00:00:00.000Z"}
FAULTS = json.dumps({"v": 1, "boot": "b1", "at": "2026-01-01T00:00:00.000Z", "faults": [FAULT]})
_OPENER = build_opener(ProxyHandler({}))


class Process:
    """A remediator on a thread, and what it says."""

    def __init__(self, server: EmbeddedApiServer, folder: Path, **changes: Any) -> None:
        server.write_kubeconfig(folder / "kubeconfig")
        self.server, self.policy, self.log = server, folder / "policy.yaml", StringIO()
        if not self.policy.exists():
            self.policy.write_text(POLICY)
        words: dict[str, Any] = {
            "kubeconfig": None, "policy": self.policy, "namespace": "nodeguard", "identity": "replica-1",
            "dry_run": False, "listen": Address("127.0.0.1", 0), "log_level": "info", **changes}
        tells = words.pop("tells", ())
        self.remediator = Remediator(RemediateSettings(**words), SystemClock(), configure("info", self.log),
                                     KubeClient.from_kubeconfig(folder / "kubeconfig"), tells)
        self.error: NodeguardError | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.remediator.run()
        except NodeguardError as error:
            self.error = error

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remediator.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a status page."""
        url = f"http://127.0.0.1:{self.remediator.status.port}{path}"
        try:
            with _OPENER.open(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except OSError as error:
            return getattr(error, "code", 0), str(error)

    def wait(self, until: Callable[[], object], what: str) -> None:
        """Until it holds."""
        end = time.monotonic() + 10
        while not until():
            assert time.monotonic() < end, f"{what}: not within 10 s; log: {self.log.getvalue()}"
            threading.Event().wait(0.01)

    def wait_ready(self) -> "Process":
        """Until it leads and knows everything."""
        self.wait(lambda: self.get("/readyz") == (200, "ready, leading\n"), "readiness")
        return self

    def node(self) -> Any:
        """The Node as it is."""
        return self.server.objects[NODE]

    def lines(self, event: str) -> list[Any]:
        """Log lines of this event."""
        found = map(json.loads, self.log.getvalue().splitlines())
        return [line for line in found if line["event"] == event]


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    """With one accelerator node whose agent tells of a broken GPU."""
    with EmbeddedApiServer() as running:
        running.create("/api/v1/nodes", {
            "metadata": {"name": "gpu-7", "annotations": {"nodeguard.io/faults": FAULTS}},
            "status": {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}})
        yield running


def reasons(server: EmbeddedApiServer) -> set[str]:
    """Of the Events that stand."""
    return {body["reason"] for path, body in server.objects.items() if "/events/" in path}


def holder(server: EmbeddedApiServer) -> str | None:
    """Who has the Lease."""
    lease = server.objects.get(LEASE) or {"spec": {}}
    found: str | None = lease["spec"].get("holderIdentity")
    return found


def test_it_leads_acts_and_lets_go(server: EmbeddedApiServer, tmp_path: Path) -> None:
    """A faulty node without pods is marked and waits for its repair; after the stop nobody holds the Lease."""
    with Process(server, tmp_path) as process:
        process.wait_ready()
        assert holder(server) == "replica-1"
        process.wait(lambda: "nodeguard.io/remediation" in process.node()["metadata"]["annotations"], "the record")
        process.wait(lambda: process.lines("begun"), "the log")
        assert process.lines("begun")[0]["node"] == "gpu-7"
        assert process.get("/healthz")[0] == 200
        process.wait(lambda: 'nodeguard_remediation_nodes{state="repairing"} 1.0' in process.get("/metrics")[1], "page")
        page = process.get("/metrics")[1]
        assert "nodeguard_remediation_leading 1.0" in page
        assert "nodeguard_remediation_slots 1.0" in page
        assert 'nodeguard_remediation_happenings_total{what="begun"} 1.0' in page
        assert 'nodeguard_remediation_phase_seconds_count{phase="quarantined"} 1.0' in page
        assert "rules_info" not in page
    assert process.error is None
    assert not holder(server)
    assert "RemediationBegun" in reasons(server)
    assert INCIDENTS in server.objects


def test_a_second_replica_waits_and_takes_over(server: EmbeddedApiServer, tmp_path: Path) -> None:
    """It is ready beside the leader, and leads as soon as that one has let go."""
    with Process(server, tmp_path) as first:
        first.wait_ready()
        second = Process(server, tmp_path, identity="replica-2")
        second.thread.start()
        try:
            second.wait(lambda: second.get("/readyz") == (200, "ready, another replica leads\n"), "readiness")
            assert holder(server) == "replica-1"
            first.remediator.stop()
            second.wait(lambda: holder(server) == "replica-2", "the Lease")
        finally:
            second.__exit__()


@pytest.mark.parametrize("where", ["flag", "policy"])
def test_dry_run_touches_nothing(server: EmbeddedApiServer, tmp_path: Path, where: str) -> None:
    """By the flag or the policy: it says what it would do, in log and Events, and the Node stays as it was."""
    (tmp_path / "policy.yaml").write_text(POLICY + ("dryRun: true\n" if where == "policy" else "dryRun: false\n"))
    with Process(server, tmp_path, dry_run=where == "flag") as process:
        process.wait_ready()
        process.wait(lambda: process.lines("would"), "the log")
        assert "drain the node" in process.lines("would")[0]["message"]
    assert "nodeguard.io/remediation" not in process.node()["metadata"]["annotations"]
    written = {request.path for request in server.requests if request.method not in ("GET", "WATCH")}
    assert all(path.split("/")[-1] == "events" or "/leases" in path for path in written)
    assert "RemediationWould" in reasons(server)


def test_policy_is_followed_while_it_runs(server: EmbeddedApiServer, tmp_path: Path) -> None:
    """A bad file keeps the last good policy and says why; the next good one is in force."""
    (tmp_path / "policy.yaml").write_text(POLICY + "dryRun: true\n")
    with Process(server, tmp_path) as process:
        process.wait_ready()
        good = process.remediator.policy.current()
        process.policy.write_text(POLICY + "budget: {maxNodes: none}\n")
        process.wait(lambda: "nodeguard_policy_invalid 1.0" in process.get("/metrics")[1], "the metric")
        assert process.remediator.policy.current() == good
        (refused,) = process.lines("policy refused")
        assert refused["problems"] == [f"{process.policy}:3:20: budget: 'maxNodes' must be a whole number, not 'none'"]
        process.policy.write_text(POLICY + "budget: {maxNodes: 2}\ndryRun: true\n")
        process.wait(lambda: "nodeguard_policy_invalid 0.0" in process.get("/metrics")[1], "the metric")
        assert process.remediator.policy.current().budget.max_nodes == 2


def test_bad_policy_at_start_is_fatal(server: EmbeddedApiServer, tmp_path: Path) -> None:
    """Every mistake is in the error."""
    (tmp_path / "policy.yaml").write_text(POLICY + "budget: {maxNodes: 0}\nstorm: 3\n")
    with pytest.raises(ConfigError) as caught:
        Process(server, tmp_path)
    assert len(caught.value.problems) == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_defect_ends_the_process(server: EmbeddedApiServer, tmp_path: Path) -> None:
    """A thread that fails is never missing in silence: the process ends, and another replica goes on."""
    def broken(_: Happening) -> None:
        raise ZeroDivisionError

    with Process(server, tmp_path, tells=(broken,)) as process:
        process.thread.join(10)
        assert not process.thread.is_alive()
    assert "the thread loop ended by a defect" in str(process.error)
    assert not holder(server)


def test_it_waits_for_a_server_that_is_away(server: EmbeddedApiServer, tmp_path: Path) -> None:
    """Alive, for the loop turns; not ready, for it knows nothing; it works as soon as the server answers."""
    process = Process(server, tmp_path)
    server.pause()
    with process:
        process.wait(lambda: process.get("/healthz")[0] == 200, "liveness")
        assert process.get("/readyz") == (503, "HTTP Error 503: Service Unavailable")
        server.resume()
        process.wait_ready()
        process.wait(lambda: process.lines("begun"), "the log")
