"""One HCA: its ports, its PCI address, and what it is for."""

from nodeguard.model.device import Device
from nodeguard.model.sample import Sample
from nodeguard.sources.rdma_files import Files, Refused
from nodeguard.sources.rdma_port import Port, is_away
from nodeguard.sources.rdma_role import CLASS, Roles
from nodeguard.sources.tree import Tree, names_of

_PORTS_LIMIT = 256


class Hca:
    """Lives from its appearance until it is gone for good; what it learned ends with it."""

    def __init__(self, name: str, tree: Tree, roles: Roles, expected: frozenset[Device]) -> None:
        """``expected``: ports that are judged whatever the HCA seems to be for."""
        self.name = name
        self._roles = roles
        self._expected = expected
        self._files = Files(tree)
        self.slot = slot_of(tree, name)
        self.model = roles.model(name, self.slot)
        self.ports: dict[int, Port] = {}
        self.here: list[Port] = []
        """Ports that the last poll found."""
        self.new = True
        self.misses = 0
        """Polls in a row that did not find it."""
        self._role = "fabric"
        self._look_for_ports()

    def _look_for_ports(self) -> None:
        for entry in names_of(self._files.tree, f"{CLASS}/{self.name}/ports"):
            if entry.isascii() and entry.isdigit() and len(entry) <= 3 and len(self.ports) < _PORTS_LIMIT:
                self.ports.setdefault(int(entry), Port(self.name, int(entry), self._files))

    def role_of(self, port: Port) -> str:
        """What a port is for; one that the operator expects is judged as a fabric's."""
        if self._role != "managed" and port.device in self._expected:
            return "fabric"
        return self._role

    def read(self, now: float, host: frozenset[str], *, slow: bool) -> list[Sample]:
        """One poll. ``host``: interfaces of the default route, looked at when ``slow``."""
        self.here = list(self.ports.values())
        if self._role == "managed":
            return []
        self.here = []
        if slow:
            self._look_for_ports()
            self._role = self._roles.of(self.name, host)
            self.new = False
        samples: list[Sample] = []
        try:
            for port in list(self.ports.values()):
                samples += self._port(port, now, slow=slow)
        except Refused:
            self._role, self.here = "managed", list(self.ports.values())
            return self._told_roles()
        return samples + self._told_roles() if slow else samples

    def _port(self, port: Port, now: float, *, slow: bool) -> list[Sample]:
        if self.role_of(port) == "virtual":
            self.here.append(port)
            return []
        try:
            samples = port.read(now, slow=slow)
        except OSError as error:
            if is_away(error):
                return []
            raise
        self.here.append(port)
        return samples

    def _told_roles(self) -> list[Sample]:
        return [Sample("rdma_port_role", port.device, self.role_of(port)) for port in self.ports.values()]


def slot_of(tree: Tree, name: str) -> str | None:
    """PCI address of an HCA with its function, as sysfs writes it; None: it is on no bus, or nothing tells."""
    try:
        return tree.link(f"{CLASS}/{name}/device").rpartition("/")[2].lower() or None
    except OSError:
        return None
