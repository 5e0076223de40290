"""NVLink5 errors: the sub-code goes before the word, the word before the number."""

import pytest

from nodeguard.vendors.nvidia import nvlink5


def resolution(code: int, words: str, registers: str) -> object:
    """The resolution of one line."""
    unit, word = words.split()
    return nvlink5.read(code, f"{unit} {word} XC0 i0 Link 03 ({registers})")["resolution"]


@pytest.mark.parametrize(("code", "words", "registers", "expected"), [
    (144, "SAW_MVB Fatal", "0x00000001 0x00000002 0x00000000 0x00000000", "reset"),
    (144, "SAW_MVB Nonfatal", "0x00000001 0x00000001 0x00000000 0x00000000", "ignore"),
    (145, "RLW_REMAP Nonfatal", "0x00000004 0x00000001 0x00000000 0x00000000", "consult_154"),
    (145, "RLW_REMAP Fatal", "0x00000004 0x00000040 0x00000000 0x00000000", "reset"),
    (145, "RLW_SRC_TRACK Nonfatal", "0x040988e2 0x00000008 0x00000000 0x00000000", "consult_154"),
    (145, "RLW_SRC_TRACK Fatal", "0x00000007 0x00000001 0x00000000 0x00000000", "reset"),
    (145, "RLW_RXPIPE Nonfatal", "0x0409a0c2 0x00000008 0x00000001 0x00000000", "ignore"),
    (146, "TLW_RX/TLW_RX_PIPE0 Fatal", "0x0000000a 0x00000004 0x00000000 0x00000000", "reset"),
    (146, "TLW_CTRL Nonfatal", "0x00000009 0x00000001 0x00000000 0x00000000", "ignore"),
    (147, "TREX Nonfatal", "0x0000000e 0x00000001 0x00000000 0x00000000", "ignore"),
    (148, "NVLPW_CTRL/NVLPW Nonfatal", "0x0000000f 0x80000000 0x00000000 0x00000000", "ignore"),
    (149, "NETIR Fatal", "0x000fe406 0x00000000 0x00000000 0x00000000", "reset"),
    (149, "NETIR_BER_EVENT Nonfatal", "0x00086226 0x00000001 0x00000000 0x00000000", "ignore"),
    (149, "NETIR_MFDE_EVENT Fatal", "0x00000014 0x00000001 0x00000000 0x00000000", "reset"),
    (149, "NETIR_MFDE_EVENT Nonfatal", "0x00000014 0x00000003 0x00000000 0x00000000", "ignore"),
    (149, "NETIR_LINK_EVT Fatal", "0x021425c6 0x00000000 0x00000000 0x00000000", "reset"),
    (149, "NETIR_LINK_EVT Fatal", "0x004505c6 0x00000000 0x00000000 0x00000000", "inspect"),
    (149, "NETIR_LINK_EVT Fatal", "0x00a505c6 0x00000000 0x00000000 0x00000000", "inspect"),
    (149, "NETIR_LINK_EVT/NETIR_LINK_DOWN Fatal", "0x02600011 0x00000000 0x00000000 0x00000000", "software"),
    (150, "MSE_WATCHDOG Fatal", "0x00000000 0x00000000 0x00000000 0x00000000", "reset"),
])
def test_catalogue_rows(code: int, words: str, registers: str, expected: str) -> None:
    """A line that the catalogue knows is resolved by its row, whatever its word."""
    assert resolution(code, words, registers) == expected


@pytest.mark.parametrize(("code", "word", "expected"), [
    (144, "Fatal", "reset"), (149, "Fatal", "reset"), (145, "Nonfatal", "consult_154"), (146, "Nonfatal", "ignore"),
])
def test_word_decides_where_the_catalogue_is_silent(code: int, word: str, expected: str) -> None:
    """An unknown unit is judged by its word; a 145 that is not fatal waits for a 154."""
    assert resolution(code, f"NEW_UNIT {word}", "0x00000001 0x12345678") == expected


@pytest.mark.parametrize("message", [
    "", "something", "NETIR Fatal XC0 i0 Link -1 (0x000fe406", "NETIR Fatal XC0 i0 Link 1 (0x000fe406)",
    "NETIR_LINK_EVT Fatal",
])
def test_short_lines_are_unread(message: str) -> None:
    """Not in the long form: only the number is left."""
    assert nvlink5.read(149, message) == {"resolution": "unread"}


def test_injected_and_link_less_lines() -> None:
    """An injected error says so, and link -1 is no link."""
    found = nvlink5.read(149, "pid=1, name=x, NETIR Fatal XC1 i1 Link -1 (0x000fe406 0x00000000)")
    assert found == {"unit": "NETIR", "word": "fatal", "injected": True, "subcode": 0, "resolution": "reset"}


def test_rows_are_well_formed_and_do_not_overlap() -> None:
    """Every row resolves to a known word, and no error is in two rows."""
    seen = set()
    for rule in nvlink5.SUB_RULES:
        assert rule.code in nvlink5.CODES
        assert rule.resolution in nvlink5.RESOLUTIONS
        for unit in rule.units:
            for status in rule.statuses or (None,):
                for subcode in rule.subcodes or (None,):
                    assert (rule.code, unit, status, subcode) not in seen
                    seen.add((rule.code, unit, status, subcode))
