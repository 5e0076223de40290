"""Messages fit where Kubernetes shows them."""

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.kube.text import cut
from nodeguard.model.text import camel_case


def test_short_text_stays() -> None:
    """What fits is not touched."""
    assert cut("one; two") == "one; two"


def test_parts_are_kept_whole() -> None:
    """A list is cut between its parts and says how many are missing."""
    assert cut("; ".join(["abcdef"] * 5), 30) == "abcdef; abcdef; and 3 more"


@given(st.text(), st.integers(min_value=16, max_value=64))
def test_cut_always_fits(text: str, longest: int) -> None:
    """Whatever the text, the result is valid and not longer than asked."""
    assert len(cut(text.encode(errors="ignore").decode(), longest).encode()) <= longest


def test_camel_case() -> None:
    """Rules are named in kebab case, reasons in camel case."""
    assert camel_case("gpu-xid-95") == "GpuXid95"
