"""Files on disk: which ones a path given by a person means, and their text."""

from collections.abc import Iterable
from pathlib import Path

from nodeguard.config.yamltree import MAX_CHARACTERS
from nodeguard.model.errors import Problem

_SUFFIXES = (".yaml", ".yml")


def yaml_files(path: Path) -> list[Path]:
    """``path`` itself if it is a file, else the YAML files directly in that directory, by name.

    Hidden names are left out, so a mounted ConfigMap is read once, through its visible links and not through
    ``..data`` as well. Directories inside, such as ``tests``, are not entered. OSError when it cannot be read.
    """
    if not path.is_dir():
        return [path]
    found = (entry for entry in path.iterdir() if entry.suffix in _SUFFIXES and not entry.name.startswith("."))
    return sorted(entry for entry in found if not entry.is_dir())


def read_text(path: Path) -> str:
    """The file's text. OSError when it cannot be read, ValueError with a sentence when it is no fit text."""
    with path.open("rb") as file:
        data = file.read(4 * MAX_CHARACTERS + 1)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 text (byte {error.start})") from error


def read_texts(paths: Iterable[Path], *, may_be_empty: bool) -> tuple[list[tuple[str, str]], list[Problem]]:
    """Name and text of every YAML file that ``paths`` mean, and what could not be read.

    A directory without YAML files is a problem unless ``may_be_empty``: a mount that failed must not look like a
    set without rules.
    """
    texts: list[tuple[str, str]] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            files = yaml_files(path)
        except OSError as error:
            problems.append(_unreadable(path, error))
            continue
        if not files and not may_be_empty:
            problems.append(Problem(str(path), 0, 0, "", "holds no *.yaml file"))
        for file in files:
            try:
                texts.append((str(file), read_text(file)))
            except (OSError, ValueError) as error:
                problems.append(_unreadable(file, error))
    return texts, problems


def _unreadable(path: Path, error: OSError | ValueError) -> Problem:
    reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
    return Problem(str(path), 0, 0, "", reason)
