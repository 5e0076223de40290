"""RDMA ports as people write them: ``mlx5_0``, ``mlx5_0/1``, ``mlx5_0/1=400``."""

import re
from typing import NamedTuple

from nodeguard.config.words import shown

_NAME = r"[A-Za-z0-9][\w.-]{0,62}"
_PORT = re.compile(rf"(?P<hca>{_NAME})(?:/(?P<number>[1-9]\d{{0,2}}))?(?:=(?P<gbps>\d{{1,5}}(?:\.\d{{1,3}})?))?",
                   re.ASCII)
_HCA = re.compile(_NAME, re.ASCII)


class ExpectedPort(NamedTuple):
    """One port that should be up."""

    hca: str
    number: int
    gbps: float | None
    """The rate that it should have, if one was given."""


def parse_expected_ports(value: object) -> tuple[ExpectedPort, ...]:
    """A list, or text with commas between ports. ValueError with a sentence."""
    found = tuple(_expected_port(one) for one in _items(value))
    twice = next((one for one in found if sum(one[:2] == other[:2] for other in found) > 1), None)
    if twice is not None:
        raise ValueError(f"port {twice.hca}/{twice.number} is expected twice")
    return found


def parse_hcas(value: object) -> tuple[str, ...]:
    """Names of HCAs: a list, or text with commas between them. ValueError with a sentence."""
    names = tuple(_items(value))
    for name in names:
        if _HCA.fullmatch(name) is None:
            raise ValueError(f"must be the name of an RDMA device, such as mlx5_4, not {shown(name)}")
    return names


def _items(value: object) -> list[str]:
    items = value if isinstance(value, list | tuple) else [value]
    return [part.strip() for item in items for part in str(item).split(",")]


def _expected_port(text: str) -> ExpectedPort:
    match = _PORT.fullmatch(text)
    if match is None or (match["gbps"] is not None and float(match["gbps"]) <= 0):
        raise ValueError(f"must be NAME, NAME/PORT or NAME/PORT=GBPS, such as mlx5_0/1=400, not {shown(text)}")
    gbps = None if match["gbps"] is None else float(match["gbps"])
    return ExpectedPort(match["hca"], int(match["number"] or 1), gbps)
