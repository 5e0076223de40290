"""The command lines of the components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import kubeconfig
from .certs import Authority, KeyPair, service_account_key
from .process import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SERVICE_RANGE = "10.0.0.0/24"


@dataclass(frozen=True)
class Ports:
    """The loopback ports of one control plane, kept over restarts."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int

    @classmethod
    def free(cls) -> Ports:
        """Five ports that are free now."""
        return cls(*(free_port() for _ in range(5)))


class Credentials:
    """Every identity of one control plane, and its components' kubeconfigs."""

    def __init__(self, directory: Path, apiserver_url: str) -> None:
        self.authority = Authority(directory)
        self.ca = self.authority.bundle
        self.serving = self.authority.server("serving", "kubernetes.default.svc")
        self.admin = self.authority.client("nodeguard-test-admin", "system:masters")
        self.service_account_key = service_account_key(directory / "service-account.key")
        self._directory = directory
        self._url = apiserver_url

    def kubeconfig(self, user: str, pair: KeyPair | None = None) -> Path:
        """A kubeconfig for `user`, by default with a new client certificate."""
        login = kubeconfig.Login(self._url, self.ca, pair=pair or self.authority.client(user))
        return kubeconfig.write(self._directory / f"{user.replace(':', '-')}.kubeconfig", login)


def etcd(binaries: Path, ports: Ports, data: Path) -> list[str]:
    """One member that never waits for a disk: its data need not survive the machine."""
    client = f"http://127.0.0.1:{ports.etcd}"
    peer = f"http://127.0.0.1:{ports.etcd_peer}"
    return [
        str(binaries / "etcd"),
        "--name=default",
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(
    binaries: Path, ports: Ports, credentials: Credentials, extra: Sequence[str]
) -> list[str]:
    """Authorization and admission as clusters have them; nobody is anonymous."""
    return [
        str(binaries / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        # Loopback is no valid endpoint for the `kubernetes` Service.
        "--endpoint-reconciler-type=none",
        f"--secure-port={ports.apiserver}",
        f"--tls-cert-file={credentials.serving.cert}",
        f"--tls-private-key-file={credentials.serving.key}",
        f"--client-ca-file={credentials.ca}",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-key-file={credentials.service_account_key}",
        f"--service-account-signing-key-file={credentials.service_account_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--allow-privileged=true",
        *extra,
    ]


def controller_manager(
    binaries: Path,
    ports: Ports,
    credentials: Credentials,
    *,
    node_lifecycle: bool,
    extra: Sequence[str],
) -> list[str]:
    """Every controller, each with its own service account, at rates that tests can use."""
    controllers = "*" if node_lifecycle else "*,-node-lifecycle-controller"
    own = credentials.kubeconfig("system:kube-controller-manager")
    return [
        str(binaries / "kube-controller-manager"),
        *_daemon(ports.controller_manager, own, credentials.serving),
        "--use-service-account-credentials",
        f"--controllers={controllers}",
        f"--root-ca-file={credentials.ca}",
        f"--service-account-private-key-file={credentials.service_account_key}",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
        *extra,
    ]


def scheduler(
    binaries: Path, ports: Ports, credentials: Credentials, extra: Sequence[str]
) -> list[str]:
    """The default scheduler."""
    own = credentials.kubeconfig("system:kube-scheduler")
    return [
        str(binaries / "kube-scheduler"),
        *_daemon(ports.scheduler, own, credentials.serving),
        *extra,
    ]


def _daemon(port: int, own: Path, serving: KeyPair) -> list[str]:
    return [
        f"--kubeconfig={own}",
        f"--authentication-kubeconfig={own}",
        f"--authorization-kubeconfig={own}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={serving.cert}",
        f"--tls-private-key-file={serving.key}",
    ]
