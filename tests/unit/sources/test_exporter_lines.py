"""Lines of the text format: read as the library reads them, whatever they are, and remembered by series."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from nodeguard.sources.exporter_lines import MAX_LINES, Lines

NAME = "M"
_VALUES = st.one_of(st.floats().map(repr), st.integers().map(str), st.sampled_from([
    "9" * 400, "1_0", "0x1", "", "1 2 3", "+Inf"]))
_TAILS = st.sampled_from(["", " 1700000000", ' # {x="y"} 3'])
_LABELS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text(alphabet='x}{"\\, =é#', max_size=6), max_size=3)


def lines() -> Lines[tuple[str, tuple[tuple[str, str], ...]]]:
    return Lines(frozenset({NAME}), lambda name, labels: (name, tuple(sorted(labels.items()))))


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@st.composite
def line(draw: st.DrawFn) -> str:
    labels = draw(_LABELS)
    body = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    return f"{NAME}{{{body}}} {draw(_VALUES)}{draw(_TAILS)}"


def oracle(text: str) -> tuple[str, tuple[tuple[str, str], ...], str] | None:
    try:
        (family,) = text_string_to_metric_families(text)
        (sample,) = family.samples
    except (ValueError, IndexError, KeyError, TypeError):
        return None
    return sample.name, tuple(sorted(sample.labels.items())), repr(float(str(sample.value)))


@given(st.lists(line(), max_size=8))
def test_lines_are_read_as_the_library_reads_them(page: list[str]) -> None:
    """At first sight and from memory alike."""
    reader = lines()
    wanted = [found for one in page if (found := oracle(one)) is not None]
    for _ in range(3):
        told = [(*plan, repr(value)) for plan, value, _ in reader.read("\n".join(page))]
        assert told == wanted
        assert reader.malformed == len(page) - len(wanted)


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    """Nothing is raised."""
    reader = lines()
    list(reader.read(text))
    list(reader.read(f"{NAME}{text}\n{text}"))


def test_series_that_left_the_page_are_forgotten() -> None:
    """Pods come and go: memory holds one page's series."""
    planned: list[str] = []
    reader = Lines(frozenset({NAME}), lambda _name, labels: planned.append(labels["pod"]))
    for pod in ("a", "a", "b", "a"):
        list(reader.read(f'{NAME}{{pod="{pod}"}} 1'))
    assert planned == ["a", "b", "a"]


def test_a_page_has_so_many_lines_and_no_more() -> None:
    """The rest is counted."""
    reader = lines()
    assert len(list(reader.read("\n".join(f'{NAME}{{a="{n}"}} 1' for n in range(MAX_LINES + 3))))) == MAX_LINES
    assert reader.dropped == 3
