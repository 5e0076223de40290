"""The interfaces that carry the node's default route, as process 1 sees them: an agent in a pod has others of its own.

Below a bond or a VLAN the physical interfaces are looked at as well; those of pods, behind a bridge, are not.
"""

from collections.abc import Iterator

from nodeguard.model.device import Device
from nodeguard.model.sample import Sample
from nodeguard.sources.tree import Tree, count_of, names_of, text_of

_NET = "1/root/sys/class/net"
_DEPTH = 3
"""A VLAN on a bond on interfaces."""
_NOWHERE = "0" * 8
_LOOPBACK = "lo"


class Interfaces:
    """Reads them. What once carried the default route stays watched, since a lost link may take its route away."""

    def __init__(self, proc: Tree) -> None:
        """``proc``: ``/proc``."""
        self._proc = proc
        self._watched: set[str] = set()

    def samples(self) -> Iterator[Sample]:
        """Link and flaps of each interface."""
        for name in self._routed():
            self._watched.update(self._physical(name, _DEPTH))
        for name in sorted(self._watched):
            device, path = Device(f"nic/{name}"), f"{_NET}/{name}"
            yield Sample("host_nic_carrier", device, count_of(self._proc, f"{path}/carrier"))
            yield Sample("host_nic_link_downed_total", device, count_of(self._proc, f"{path}/carrier_down_count"))

    def _routed(self) -> set[str]:
        """Interfaces of the default routes of both families (formats: proc(5))."""
        four = (line.split() for line in text_of(self._proc, "1/net/route").splitlines()[1:])
        six = (line.split() for line in text_of(self._proc, "1/net/ipv6_route").splitlines())
        found = {row[0] for row in four if len(row) > 7 and row[1] == _NOWHERE and row[7] == _NOWHERE}
        found |= {row[9] for row in six if len(row) > 9 and not row[0].strip("0") and row[1] == "00"}
        return found - {_LOOPBACK}

    def _physical(self, name: str, depth: int) -> Iterator[str]:
        """The interface with its own device, or the ones below it that have."""
        files = names_of(self._proc, f"{_NET}/{name}")
        if "device" in files:
            yield name
        elif depth:
            for lower in files:
                if lower.startswith("lower_"):
                    yield from self._physical(lower.removeprefix("lower_"), depth - 1)
