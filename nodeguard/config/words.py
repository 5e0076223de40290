"""The nearest valid word for a misspelt one."""

from collections.abc import Collection
from difflib import get_close_matches

_LIST_AT_MOST = 8


def nearest(word: str, words: Collection[str]) -> str | None:
    """The valid word that ``word`` probably means; None when nothing is near."""
    by_lower = {option.lower(): option for option in words}
    found = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def hint(word: object, words: Collection[str]) -> str:
    """End of a message about an unknown word: the nearest one, or all of them when they are few."""
    guess = nearest(word[:200], words) if isinstance(word, str) else None
    if guess is not None:
        return f"; did you mean '{guess}'?"
    return f"; use one of: {', '.join(words)}" if 0 < len(words) <= _LIST_AT_MOST else ""


def shown(value: object) -> str:
    """A value as a message quotes it: on one line and cut short."""
    text = f"'{value}'" if isinstance(value, str) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}…"
