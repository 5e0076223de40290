"""What is on the PCI bus that matters here: accelerators and network adapters, and which of them are neighbours."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from nodeguard.model.device import Device, gpu_at, nvswitch, pci_address, pcie, rdma_port
from nodeguard.sources.tree import Tree, names_of
from nodeguard.vendors.pci import accelerator_kind

BUS = "bus/pci/devices"
_NETWORK = "0x02"
_SHARED_BRIDGE = 2
"""Names at the beginning of two paths that must agree: the host bridge, and at least one bridge below it."""


@dataclass(frozen=True, slots=True)
class Function:
    """One PCI function."""

    name: str
    device: Device
    path: tuple[str, ...]
    """Names of what lies above it, from the host bridge down, and its own; empty: unknown."""
    is_network: bool

    @property
    def directory(self) -> str:
        """Where its files are."""
        return f"{BUS}/{self.name}"

    @property
    def bridge(self) -> str | None:
        """The function right above it; None below the host bridge."""
        return self.path[-2] if len(self.path) > 1 and pci_address(self.path[-2]) else None


class Functions:
    """Finds them. What a function is, is read once; that it is there, at every look."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[str, Function | None] = {}

    def look(self) -> tuple[Function, ...]:
        """Every accelerator and every network adapter whose driver is bound. OSError: the bus cannot be seen."""
        names = self._tree.names(BUS)
        self._known = {name: self._known[name] if name in self._known else self._read(name) for name in names}
        return tuple(one for one in self._known.values()
                     if one is not None and (not one.is_network or self._is_bound(one)))

    def _is_bound(self, function: Function) -> bool:
        return any(self._tree.exists(f"{function.directory}/{what}") for what in ("net", "infiniband"))

    def _read(self, name: str) -> Function | None:
        pci, directory = pci_address(name), f"{BUS}/{name}"
        if pci is None or self._tree.exists(f"{directory}/physfn"):  # a virtual function has no link of its own
            return None
        try:
            vendor, code = self._tree.read(f"{directory}/vendor"), self._tree.read(f"{directory}/class")
        except OSError:
            return None
        kind = accelerator_kind(vendor, code)
        if kind is None and not code.startswith(_NETWORK):
            return None
        device = {"gpu": gpu_at, "nvswitch": nvswitch}.get(kind or "", pcie)(pci)
        return Function(name, device, self._path(directory), kind is None)

    def _path(self, directory: str) -> tuple[str, ...]:
        try:
            _, found, below = self._tree.link(directory).partition("devices/")
        except OSError:
            return ()
        return tuple(below.split("/")) if found else ()

    def ports(self, function: Function) -> Iterator[Device]:
        """RDMA ports of a network adapter."""
        base = f"{function.directory}/infiniband"
        for hca in names_of(self._tree, base):
            numbers = [int(port) for port in names_of(self._tree, f"{base}/{hca}/ports") if port.isdecimal()]
            yield from (rdma_port(hca, number) for number in numbers or (1,))

    def neighbours(self, functions: Iterable[Function]) -> Mapping[Device, tuple[Device, ...]]:
        """Network adapter, and each of its RDMA ports → the GPUs that share the longest way up with it.

        Sharing the host bridge alone is no neighbourhood.
        """
        functions = tuple(functions)
        gpus = [one for one in functions if one.device.startswith("gpu/")]
        found: dict[Device, tuple[Device, ...]] = {}
        for adapter in functions:
            near = _nearest(adapter, gpus) if adapter.is_network else ()
            if near:
                found.update(dict.fromkeys((adapter.device, *self.ports(adapter)), near))
        return found


def _nearest(adapter: Function, gpus: Iterable[Function]) -> tuple[Device, ...]:
    shared = {gpu.device: _shared(adapter.path, gpu.path) for gpu in gpus}
    most = max(shared.values(), default=0)
    return tuple(sorted(gpu for gpu, count in shared.items() if count == most)) if most >= _SHARED_BRIDGE else ()


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many bridges two functions have in common, from the top."""
    count = 0
    for name, same in zip(one[:-1], other[:-1], strict=False):
        if name != same:
            break
        count += 1
    return count
