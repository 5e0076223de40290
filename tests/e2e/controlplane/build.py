"""Build the control plane's binaries once, outside the checkout.

The versions are those of ``tests/e2e/go.mod``. The cache's directory name holds the
Kubernetes version and a hash of go.mod and go.sum, so a changed pin is another
directory and an unchanged one is never built twice. Two processes that want the
same binaries wait for each other on a file lock; a build that was interrupted
leaves nothing that a later one would take for finished.

Run as ``python -m tests.e2e.controlplane.build`` to fill the cache beforehand.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess  # noqa: TID251  # runs go
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import ControlPlaneError, ControlPlaneUnavailable

MODULE_DIR = Path(__file__).resolve().parent.parent
CACHE_ENV = "NODEGUARD_CONTROLPLANE_CACHE"
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
_LOG_TAIL = 2000

Echo = Callable[[str], None]


def _silent(line: str) -> None:
    del line


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def kubernetes_version() -> str:
    """The pinned Kubernetes version, such as ``v1.37.2``."""
    return _pinned(r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)")


def _pinned(pattern: str) -> str:
    match = re.search(pattern, (MODULE_DIR / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise ControlPlaneError(f"{MODULE_DIR / 'go.mod'}: nothing matches {pattern}")
    return match.group(1)


def cache_dir() -> Path:
    """Where the binaries of the present pins belong; it need not exist."""
    root = os.environ.get(CACHE_ENV)
    if root is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        root = str(Path(base) / "nodeguard" / "controlplane")
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE_DIR / name).read_bytes())
    return Path(root) / f"{kubernetes_version()}-{digest.hexdigest()[:12]}"


def ensure_binaries(echo: Echo = _silent) -> Path:
    """Return the directory with every binary of `PACKAGES`, building them if needed.

    The first call takes minutes and says each step through `echo`. Raises
    `ControlPlaneUnavailable` where there is no Go that can build them.
    """
    target = cache_dir()
    if _complete(target):
        return target
    go = _require_go()
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_suffix(target.suffix + ".lock"), echo):
        if not _complete(target):
            _build_all(go, target, echo)
    return target


def _complete(target: Path) -> bool:
    return all(os.access(target / name, os.X_OK) for name in PACKAGES)


def _require_go() -> str:
    wanted = _pinned(r"^go (\S+)")
    cure = (
        f"the control plane for these tests is built with Go >= {wanted}: install it "
        "from https://go.dev/dl/, or set NODEGUARD_E2E_KUBECONFIG to the kubeconfig "
        "of a cluster that may be used for tests"
    )
    go = shutil.which("go")
    if go is None:
        raise ControlPlaneUnavailable(f"no Go found; {cure}")
    # `go env` in the module's directory answers for the toolchain that would be used.
    answer = subprocess.run(
        [go, "env", "GOVERSION"], cwd=MODULE_DIR, capture_output=True, text=True, check=False
    )
    found = answer.stdout.strip().removeprefix("go")
    if answer.returncode != 0 or _numbers(found) < _numbers(wanted):
        raise ControlPlaneUnavailable(f"found Go {found or 'that does not run'}; {cure}")
    return go


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


@contextmanager
def _locked(path: Path, echo: Echo) -> Iterator[None]:
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            echo(f"another process is building {path.stem}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build_all(go: str, target: Path, echo: Echo) -> None:
    echo(f"building Kubernetes {kubernetes_version()} and etcd into {target} (minutes, once)")
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for name, package in PACKAGES.items():
            _build_one(go, package, work / name, echo)
        # Whatever stands there is incomplete, and the lock is ours.
        shutil.rmtree(target, ignore_errors=True)
        work.chmod(0o755)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _build_one(go: str, package: str, output: Path, echo: Echo) -> None:
    started = time.monotonic()
    linker = f"-s -w -X k8s.io/component-base/version.gitVersion={kubernetes_version()}"
    command = [go, "build", "-mod=readonly", "-trimpath", "-ldflags", linker]
    command += ["-o", str(output), package]
    nice = shutil.which("nice")
    if nice is not None:
        command = [nice, "-n", "10", *command]
    # Static: the cache then serves any distribution, and no C compiler is needed.
    env = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(
        command, cwd=MODULE_DIR, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        tail = done.stderr.strip()[-_LOG_TAIL:]
        raise ControlPlaneError(f"go build {package} failed:\n{tail}")
    size = output.stat().st_size / 1e6
    echo(f"built {output.name}: {time.monotonic() - started:.0f} s, {size:.0f} MB")


def main() -> int:
    """Fill the cache and print where it is."""
    try:
        where = ensure_binaries(_print)
    except (ControlPlaneUnavailable, ControlPlaneError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _print(f"ready: {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
