"""The targets of ``make fuzz``, for a moment: every seed, and a few inputs made from pieces of each format."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.engines import inputs
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_every_seed_is_borne(name: str) -> None:
    """Seeds are whole inputs in the parser's format."""
    for seed in TARGETS[name].seeds:
        TARGETS[name].run(seed)


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_made_of_pieces_are_borne(name: str) -> None:
    """The same inputs at every run."""
    @settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.shared(inputs(name)))
    def borne(data: bytes) -> None:
        TARGETS[name].run(data)

    borne()
