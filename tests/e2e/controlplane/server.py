"""The control plane: etcd, API server, controller manager and scheduler on loopback."""

from __future__ import annotations

import atexit
import time
from typing import TYPE_CHECKING, Self

from . import flags, kubeconfig
from .admin import Admin, ApiError
from .build import ensure_binaries
from .cluster import Cluster, scratch_directory
from .errors import ControlPlaneError
from .process import Component, Reaper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

_POLL_SECONDS = 0.05
_START_SECONDS = 60.0


class ControlPlane(Cluster):
    """A cluster of one's own, without nodes; a context manager.

    All state is in a scratch directory that `stop` removes. The ports stay the same
    from `start` to `stop`, so that a client meets an outage as it would a real one.
    """

    def __init__(
        self,
        *,
        with_scheduler: bool = True,
        with_controller_manager: bool = True,
        node_lifecycle: bool = True,
        apiserver_flags: Sequence[str] = (),
        controller_manager_flags: Sequence[str] = (),
        scheduler_flags: Sequence[str] = (),
        binaries: Path | None = None,
    ) -> None:
        """Prepare everything but the processes.

        Without `node_lifecycle` a node whose lease is not renewed stays as it is.
        """
        self._binaries = ensure_binaries() if binaries is None else binaries
        self._ports = flags.Ports.free()
        url = f"https://127.0.0.1:{self._ports.apiserver}"
        directory = scratch_directory()
        self.credentials = flags.Credentials(directory / "pki", url)
        login = kubeconfig.Login(url, self.credentials.ca, pair=self.credentials.admin)
        super().__init__(directory, login)
        self._with_scheduler = with_scheduler
        self._with_controller_manager = with_controller_manager
        self._node_lifecycle = node_lifecycle
        self._apiserver_flags = tuple(apiserver_flags)
        if not (node_lifecycle and with_controller_manager):
            # Nobody would ever remove the not-ready taint that a new node is given.
            self._apiserver_flags += ("--disable-admission-plugins=TaintNodesByCondition",)
        self._controller_manager_flags = tuple(controller_manager_flags)
        self._scheduler_flags = tuple(scheduler_flags)
        self._reaper: Reaper | None = None
        self._components: dict[str, Component] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pids(self) -> dict[str, int]:
        """The running components' processes, the reaper's included."""
        found = {name: component.pid for name, component in self._components.items()}
        if self._reaper is not None:
            found["reaper"] = self._reaper.pid
        return found

    def start(self) -> None:
        """Start all components and return once pods can be created."""
        atexit.register(self.stop)
        try:
            self._reaper = Reaper()
            self._start_etcd()
            self.start_apiserver()
            if self._with_controller_manager:
                self.start_controller_manager(wait=False)
            if self._with_scheduler:
                self.start_scheduler(wait=False)
            self._wait_usable()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End what `start` started, and remove the scratch directory. May be called twice."""
        atexit.unregister(self.stop)
        # Those that depend on others first: nobody retries against what has gone.
        for name in reversed(list(self._components)):
            # Little patience: the controller manager would retry for long, for nothing.
            self._stop_component(name, grace=1.5)
        if self._reaper is not None:
            self._reaper.close()
            self._reaper = None
        self.discard_directory()

    def start_apiserver(self) -> None:
        """Start the API server on its port and wait until it is ready."""
        command = flags.apiserver(
            self._binaries, self._ports, self.credentials, self._apiserver_flags
        )
        self._run("kube-apiserver", command)
        self._await("kube-apiserver", lambda: self.admin.text("/readyz") == "ok")

    def stop_apiserver(self, *, grace: float = 5.0) -> None:
        """Begin an outage: connections are cut and refused until `start_apiserver`."""
        self._stop_component("kube-apiserver", grace)

    def start_controller_manager(self, *, wait: bool = True) -> None:
        """Start the controller manager, as `start` does unless told otherwise."""
        command = flags.controller_manager(
            self._binaries,
            self._ports,
            self.credentials,
            node_lifecycle=self._node_lifecycle,
            extra=self._controller_manager_flags,
        )
        self._run("kube-controller-manager", command)
        if wait:
            self._await_healthy("kube-controller-manager", self._ports.controller_manager)

    def stop_controller_manager(self) -> None:
        """End the controller manager; the rest goes on."""
        self._stop_component("kube-controller-manager")

    def start_scheduler(self, *, wait: bool = True) -> None:
        """Start the scheduler, as `start` does unless told otherwise."""
        command = flags.scheduler(
            self._binaries, self._ports, self.credentials, self._scheduler_flags
        )
        self._run("kube-scheduler", command)
        if wait:
            self._await_healthy("kube-scheduler", self._ports.scheduler)

    def stop_scheduler(self) -> None:
        """End the scheduler; pods that are created stay pending."""
        self._stop_component("kube-scheduler")

    def as_node(self, name: str) -> Admin:
        """Raw access with a client certificate of node `name`'s kubelet."""
        return Admin(self.url, self.ca, pair=self.credentials.authority.node(name))

    def log(self, component: str) -> str:
        """The whole log of `component` so far."""
        return self._log_file(component).read_text(errors="replace")

    def _start_etcd(self) -> None:
        data = self.directory / "etcd"
        self._run("etcd", flags.etcd(self._binaries, self._ports, data))
        client = Admin(f"http://127.0.0.1:{self._ports.etcd}", None)
        self._await("etcd", lambda: "true" in client.text("/health"))

    def _wait_usable(self) -> None:
        if self._with_controller_manager:
            manager = "kube-controller-manager"
            self._await_healthy(manager, self._ports.controller_manager)
            self._await(manager, lambda: self.admin.get(_DEFAULT_ACCOUNT))
        else:
            # Without it no pod is admitted, and nobody else would make it.
            self._make_default_account()
        if self._with_scheduler:
            self._await_healthy("kube-scheduler", self._ports.scheduler)

    def _make_default_account(self) -> None:
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default"},
        }
        path = _DEFAULT_ACCOUNT.rpartition("/")[0]
        self._await("kube-apiserver", lambda: self.admin.create(path, account))

    def _await_healthy(self, name: str, port: int) -> None:
        client = Admin(f"https://127.0.0.1:{port}", self.ca)
        self._await(name, lambda: client.text("/healthz") == "ok")

    def _await(self, name: str, ready: Callable[[], object]) -> None:
        component = self._components[name]
        end = time.monotonic() + _START_SECONDS
        latest: object = "not ready"
        while time.monotonic() < end:
            component.check_alive()
            try:
                if ready():
                    return
            except (ApiError, OSError) as error:
                latest = error
            time.sleep(_POLL_SECONDS)
        raise ControlPlaneError(
            f"{name} not ready within {_START_SECONDS:.0f} s ({latest}); "
            f"its log ends:\n{component.tail()}"
        )

    def _run(self, name: str, command: Sequence[str]) -> None:
        if self._reaper is None:
            raise ControlPlaneError(f"{name}: the control plane is not started")
        if name in self._components:
            raise ControlPlaneError(f"{name} is running already")
        self._components[name] = Component(name, command, self._log_file(name), self._reaper)

    def _stop_component(self, name: str, grace: float = 5.0) -> None:
        component = self._components.pop(name, None)
        if component is not None:
            component.stop(grace)

    def _log_file(self, name: str) -> Path:
        return self.directory / f"{name}.log"


_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
