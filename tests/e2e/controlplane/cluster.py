"""What a test may ask of any cluster, its own control plane or one it was given."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess  # noqa: TID251  # runs kubectl
import tempfile
from pathlib import Path

from . import kubeconfig
from .admin import Admin, ApiError, Object
from .build import cache_dir
from .certs import Authority
from .errors import ControlPlaneError
from .proxy import FaultProxy

CLUSTER_ENV = "NODEGUARD_E2E_KUBECONFIG"
KEEP_ENV = "NODEGUARD_E2E_KEEP"
_RBAC = "rbac.authorization.k8s.io"


def scratch_directory() -> Path:
    """A new directory, in memory where the machine has such a file system."""
    memory = Path("/dev/shm")  # noqa: S108  # mkdtemp makes it safe
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    return Path(tempfile.mkdtemp(prefix="nodeguard-e2e-", dir=memory if usable else None))


class Cluster:
    """An API server, an administrator's access to it and a scratch directory."""

    def __init__(self, directory: Path, login: kubeconfig.Login) -> None:
        self.directory = directory
        self.url = login.server
        self.ca = login.ca
        self.kubeconfig = kubeconfig.write(directory / "admin.kubeconfig", login)
        self.admin = Admin(login.server, login.ca, pair=login.pair, token=login.token)
        self._numbers = itertools.count(1)
        self._proxy_ca: Authority | None = None

    def kubeconfig_for_token(
        self, token: str, *, server: str | None = None, ca: Path | None = None
    ) -> Path:
        """A kubeconfig that logs in with `token`, straight or through a proxy's URL and CA."""
        login = kubeconfig.Login(server or self.url, ca or self.ca, token=token)
        return kubeconfig.write(self.directory / f"token-{next(self._numbers)}.kubeconfig", login)

    def node_bound_token(
        self, node: str, namespace: str, serviceaccount: str, *, seconds: int = 3600
    ) -> str:
        """A service-account token that says it belongs to `node` (whose Node must exist)."""
        uid = self.admin.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
        bound = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
        return self._token(namespace, serviceaccount, seconds, {"boundObjectRef": bound})

    def token(self, namespace: str, serviceaccount: str, *, seconds: int = 3600) -> str:
        """A service-account token bound to nothing."""
        return self._token(namespace, serviceaccount, seconds, {})

    def admin_token(self) -> str:
        """A token with every right, for where a client certificate cannot pass: a proxy."""
        name = "nodeguard-e2e-admin"
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": name}],
        }
        self._ensure("/api/v1/namespaces/default/serviceaccounts", account)
        self._ensure(f"/apis/{_RBAC}/v1/clusterrolebindings", binding)
        return self.token("default", name)

    def _ensure(self, collection: str, body: Object) -> None:
        try:
            self.admin.create(collection, body)
        except ApiError as error:
            if error.status != 409:
                raise

    def _token(
        self, namespace: str, serviceaccount: str, seconds: int, extra: dict[str, object]
    ) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{serviceaccount}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds, **extra},
        }
        token: str = self.admin.create(path, request)["status"]["token"]
        return token

    def with_token(self, token: str) -> Admin:
        """Raw access under `token`."""
        return Admin(self.url, self.ca, token=token)

    def as_node(self, name: str) -> Admin:
        """Raw access with the identity of node `name`'s kubelet."""
        login = kubeconfig.read(self.kubeconfig, self.directory)
        who = {"Impersonate-User": f"system:node:{name}", "Impersonate-Group": "system:nodes"}
        return Admin(self.url, self.ca, pair=login.pair, token=login.token, headers=who)

    def proxy(self) -> FaultProxy:
        """A proxy before this API server; use as a context manager."""
        if self._proxy_ca is None:
            self._proxy_ca = Authority(self.directory / "proxy", "nodeguard-test-proxy-ca")
        serving = self._proxy_ca.server("proxy")
        return FaultProxy(self.url, self.ca, serving, ca=self._proxy_ca.bundle)

    def kubectl(self, *arguments: str) -> str:
        """The output of kubectl with the administrator's kubeconfig."""
        own = cache_dir() / "kubectl"
        program = str(own) if own.exists() else shutil.which("kubectl")
        if program is None:
            raise ControlPlaneError("no kubectl: neither in the cache nor on the PATH")
        done = subprocess.run(
            [program, f"--kubeconfig={self.kubeconfig}", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if done.returncode != 0:
            raise ControlPlaneError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def discard_directory(self) -> None:
        """Remove the scratch directory, unless the environment asks to keep it."""
        if not os.environ.get(KEEP_ENV):
            shutil.rmtree(self.directory, ignore_errors=True)


def existing_cluster(path: Path) -> Cluster:
    """The cluster of the user's kubeconfig `path`."""
    directory = scratch_directory()
    return Cluster(directory, kubeconfig.read(path, directory))
