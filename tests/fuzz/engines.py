"""What drives a target: each gives it inputs until ``runs`` of them were borne, or ends the process with a failure."""

from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def inputs(name: str) -> st.SearchStrategy[bytes]:
    """Pieces of a target's format in any order, seeds with a few pieces changed, and plain bytes."""
    from tests.fuzz.targets import TARGETS, tokens  # noqa: PLC0415 # after atheris has hooked the imports

    target = TARGETS[name]
    piece = st.one_of(st.sampled_from(tokens(target)), st.binary(max_size=4))
    return st.one_of(st.builds(_changed, st.sampled_from(target.seeds), st.lists(
        st.tuples(st.integers(0, 2000), st.integers(0, 12), piece), min_size=1, max_size=5)),
        st.lists(piece, max_size=60).map(b"".join))


def _changed(seed: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for place, length, piece in changes:
        at = place % (len(seed) + 1)
        seed = seed[:at] + piece + seed[at + length:]
    return seed


def by_hypothesis(name: str, runs: int, corpus: Path) -> None:
    """``runs`` inputs put together from the format's pieces."""
    del corpus
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415 # after atheris has hooked the imports

    @settings(max_examples=runs, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(inputs(name))
    def holds(data: bytes) -> None:
        TARGETS[name].run(data)

    holds()


def by_atheris(name: str, runs: int, corpus: Path) -> None:
    """``runs`` inputs guided by coverage; ends the process."""
    import atheris  # noqa: PLC0415 # not everywhere

    with atheris.instrument_imports(include=["nodeguard"]):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415 # after atheris has hooked the imports
    folder = corpus / name
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds):
        (folder / f"seed-{number}").write_bytes(seed)
    flags = [f"-runs={runs}", "-max_len=4096", "-verbosity=0", f"-artifact_prefix={corpus}/{name}-"]
    atheris.Setup(["fuzz", *flags, str(folder)], TARGETS[name].run)
    atheris.Fuzz()


ENGINES: dict[str, Callable[[str, int, Path], None]] = {"atheris": by_atheris, "hypothesis": by_hypothesis}
