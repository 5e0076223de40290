"""``nodeguard remediate`` on the command line: mistakes are one plain line and exit 2; policies can be checked."""

import json
from pathlib import Path

import pytest

from nodeguard.__main__ import main

CAP = pytest.CaptureFixture[str]
POLICY = "apiVersion: nodeguard.io/v1\nkind: RemediationPolicy\n"


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "NODEGUARD_POLICY", "NODEGUARD_SETTINGS"):
        monkeypatch.delenv(name, raising=False)


def run(capsys: CAP, *words: object) -> tuple[int, list[str], list[str]]:
    """Exit code, lines of stdout, lines of stderr."""
    code = main(["remediate", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err.splitlines()


def test_without_a_cluster(capsys: CAP) -> None:
    """It says what to give."""
    assert run(capsys) == (
        2, [], ["nodeguard: no cluster: give --kubeconfig FILE, or run as a pod with a service account"])


def test_check_of_the_shipped_policy(capsys: CAP) -> None:
    """It is valid; its hash is the one of incidents and metrics."""
    code, out, err = run(capsys, "--check")
    assert (code, err) == (0, [])
    assert "is valid, hash " in out[0]


def test_check_tells_every_mistake(capsys: CAP, tmp_path: Path) -> None:
    """One line each, exit 2."""
    file = tmp_path / "p.yaml"
    file.write_text(POLICY + "budgt: {}\nstorm: {nodes: 0}\n")
    code, out, err = run(capsys, "--check", "--policy", file)
    assert (code, out) == (2, [])
    assert err == [f"nodeguard: {file}:3:1: unknown key 'budgt'; did you mean 'budget'?",
                   f"nodeguard: {file}:4:16: storm: 'nodes' must be greater than or equal to 1"]


def test_schema_is_json(capsys: CAP) -> None:
    """For editors."""
    code, out, _ = run(capsys, "--policy-schema")
    assert code == 0
    assert json.loads("\n".join(out))["title"] == "nodeguard remediation policy"
