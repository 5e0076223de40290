"""What an HCA is for, and which HCAs are alike, as sysfs and the routing table tell.

Only ``fabric`` ports are judged by the shipped rules. A NIC of the default route or of a bond serves the host or its
storage, and its link is watched by other means; a virtual function's link is its parent's, and it goes in and out of
pods; a function that the firmware manages (NVLink bridges) is DOWN or INIT all its life.
"""

from typing import NamedTuple

from nodeguard.sources.tree import Tree, names_of, text_of

CLASS = "class/infiniband"
_NET = "class/net"
_ROUTES = ("1/net/route", "net/route")
"""Below /proc: the host's own network namespace first, which a pod's own view is not."""
_DEEPEST = 4
"""How many bridges, bonds and VLANs may lie between the default route and the NIC."""


class Model(NamedTuple):
    """Ports with equal values, and one link layer, are peers. The PCI function tells the two ports of a card apart."""

    hca_type: str
    board: str
    device: str
    function: str


class Roles:
    """Looks at HCAs on one node."""

    def __init__(self, tree: Tree, proc: Tree | None) -> None:
        """``proc``: the tree below /proc; None: the default route is not known."""
        self._tree = tree
        self._proc = proc

    def host_netdevs(self) -> frozenset[str]:
        """Interfaces that the default route goes through, with those below them."""
        found: set[str] = set()
        wave = set(self._default_interfaces())
        for _ in range(_DEEPEST):
            found |= wave
            wave = {name.removeprefix("lower_") for upper in wave for name in names_of(self._tree, f"{_NET}/{upper}")
                    if name.startswith("lower_")} - found
        return frozenset(found | wave)

    def _default_interfaces(self) -> list[str]:
        proc = self._proc
        texts = () if proc is None else (text_of(proc, path) for path in _ROUTES)
        rows = (line.split() for line in next(filter(None, texts), "").splitlines()[1:])
        return [row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"]

    def of(self, hca: str, host: frozenset[str]) -> str:
        """The role of an HCA: ``virtual``, ``bond``, ``host`` or ``fabric``."""
        device = f"{CLASS}/{hca}/device"
        if self._tree.exists(f"{device}/physfn"):
            return "virtual"
        netdevs = names_of(self._tree, f"{device}/net")
        if any(self._in_bond(f"{device}/net/{netdev}") for netdev in netdevs):
            return "bond"
        return "host" if host.intersection(netdevs) else "fabric"

    def _in_bond(self, netdev: str) -> bool:
        if self._tree.exists(f"{netdev}/bonding_slave"):
            return True
        try:
            master = self._tree.link(f"{netdev}/master").rpartition("/")[2]
        except OSError:
            return False
        return master.startswith("bond") or self._tree.exists(f"{_NET}/{master}/bonding")

    def model(self, hca: str, slot: str | None) -> Model | None:
        """What its peers share; None: nothing tells."""
        path = f"{CLASS}/{hca}"
        names = ("hca_type", "board_id", "device/device")
        hca_type, board, device = (text_of(self._tree, f"{path}/{name}") for name in names)
        function = (slot or "").rpartition(".")[2]
        return Model(hca_type, board, device, function) if hca_type or board or device else None

