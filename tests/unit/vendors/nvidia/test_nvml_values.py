"""NVML's numbers: any number at all is read without a complaint."""

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.vendors.nvidia.nvml_errors import Code, NvmlError, word
from nodeguard.vendors.nvidia.nvml_values import FABRIC_STATES, fabric_faults, fabric_state, known


@given(st.integers(min_value=-(1 << 62), max_value=0x7FFFFFEF))
def test_plain_numbers_are_themselves(value: int) -> None:
    """Below the first blank nothing is lost, negative numbers included."""
    assert known(value) == value


@given(st.floats())
def test_a_known_double_is_finite_and_below_the_blank(value: float) -> None:
    """What is no finite number, or as large as a blank, is unknown."""
    found = known(value)
    assert found is None or (found == value and abs(found) < 1 << 47)


@given(st.integers(0, (1 << 32) - 1))
def test_any_health_mask_is_read(mask: int) -> None:
    """Each part is 0, 1 or unknown, and only a part at fault makes a completed fabric unhealthy."""
    parts = fabric_faults(mask)
    assert set(parts.values()) <= {0, 1, None}
    assert (fabric_state(3, 0, mask) == "unhealthy") == (1 in parts.values())


@given(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1))
def test_any_fabric_state_is_a_word_or_unknown(state: int, status: int, mask: int) -> None:
    """Numbers from beyond this nvml.h are unknown."""
    assert fabric_state(state, status, mask) in {*FABRIC_STATES, "unhealthy", None}


@given(st.integers(0, 2000))
def test_any_code_has_a_word_and_a_sentence(code: int) -> None:
    """Unknown ones keep their number."""
    assert word(code) == (Code(code).name if code in list(Code) else f"ERROR_{code}")
    assert str(NvmlError(code, "here")).startswith("here: ")
