"""Which regular expressions a rule may use: those that Python's backtracking matcher runs in linear time.

``.*`` and its kin are where a backtracking matcher takes too long, so what it may try is counted before it runs.
Allowed are literals, classes, groups, alternatives and bounded repetition as long as they stand for at most
``MAX_WAYS`` ways to match, one unbounded repetition of something that can match in one way only, and a closing
``.*`` (with DOTALL it never has to be retried). The time is then at most proportional to the length of the value.
Back-references, look-around, inline flags and possessive forms are refused. Patterns are anchored at both ends.
"""

import re
from typing import NamedTuple

MAX_LENGTH = 200
MAX_WAYS = 500
_MAX_DEPTH = 8
_MAX_REPEAT = 100
_CLASS_ESCAPES = "dDwWsSt"
_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d{0,4})(,?)(\d{0,4})\})(\??)")
_SET_OPERATORS = ("--", "&&", "||", "~~")


class _Cost(NamedTuple):
    ways: int = 1
    unbounded: int = 0


def linear_regex(pattern: str) -> str:
    """The pattern to give to ``re.compile(...).fullmatch``; ValueError with a sentence when it is refused."""
    if not 0 < len(pattern) <= MAX_LENGTH:
        raise ValueError(f"a regular expression must have 1 to {MAX_LENGTH} characters")
    try:
        re.compile(_checked(pattern))
    except (re.error, OverflowError) as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return f"(?s:{pattern})"


def _checked(pattern: str) -> str:
    scanner = _Scanner(pattern)
    cost = scanner.alternatives(0)
    if scanner.position < len(pattern):
        raise ValueError("has a ')' without '('")
    if cost.unbounded - scanner.closes_open > 1:
        raise ValueError("may repeat without bound (* + {n,}) once, and end in .*: more can take too long to match")
    return pattern


class _Scanner:
    """Walks over a pattern once and counts the ways it can match."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.position = 0
        self.closes_open = False
        """The last thing read outside every group was ``.*``."""

    def alternatives(self, depth: int) -> _Cost:
        """Read up to the group's end. Branches are tried one after another, so their ways add up."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"has groups nested more than {_MAX_DEPTH} deep")
        branches = [self._sequence(depth)]
        while self._take("|"):
            branches.append(self._sequence(depth))
        if len(branches) > 1:
            self.closes_open = False
        return _limited(sum(branch.ways for branch in branches), max(branch.unbounded for branch in branches))

    def _sequence(self, depth: int) -> _Cost:
        ways, unbounded = 1, 0
        while self.position < len(self._pattern) and self._pattern[self.position] not in "|)":
            start = self.position
            cost = self._repeated(self._atom(depth))
            self.closes_open = depth == 0 and self._pattern[start:self.position] == ".*"
            ways, unbounded = ways * cost.ways, unbounded + cost.unbounded
            _limited(ways, unbounded)
        return _Cost(ways, unbounded)

    def _atom(self, depth: int) -> _Cost:
        character = self._next()
        if character == "(":
            return self._group(depth)
        if character == "[":
            self._set()
        elif character == "\\":
            self._escape()
        elif character in "*+?{}":
            raise ValueError(f"has a '{character}' with nothing to repeat; write \\{character} for the character")
        return _Cost()

    def _group(self, depth: int) -> _Cost:
        if self._take("?") and not self._take(":"):
            raise ValueError("may use groups ( ) and (?: ) only, no look-around, flags or named groups")
        cost = self.alternatives(depth + 1)
        if not self._take(")"):
            raise ValueError("has a '(' without ')'")
        return cost

    def _set(self) -> None:
        self._take("^")
        first = True
        while (character := self._next()) != "]" or first:
            if character == "\\":
                self._escape()
            elif character == "[" or character + self._pattern[self.position:self.position + 1] in _SET_OPERATORS:
                raise ValueError(f"has '{character}' inside [ ]; write \\{character} for the character")
            first = False

    def _escape(self) -> None:
        character = self._next()
        if character.isalnum() and character not in _CLASS_ESCAPES:
            raise ValueError(f"may not use \\{character}; allowed are \\d \\w \\s, their capitals, \\t and \\ + sign")

    def _repeated(self, cost: _Cost) -> _Cost:
        found = _QUANTIFIER.match(self._pattern, self.position)
        if found is None:
            return cost
        self.position = found.end()
        low, high = _bounds(found)
        if high is None:
            if cost != _Cost():
                raise ValueError("repeats without bound what can itself match in several ways")
            return _Cost(1, 1)
        if cost.unbounded and high > 1:
            raise ValueError("repeats a group that repeats without bound")
        return _limited((high - low + 1) * cost.ways**high, cost.unbounded)

    def _take(self, character: str) -> bool:
        if not self._pattern.startswith(character, self.position):
            return False
        self.position += 1
        return True

    def _next(self) -> str:
        if self.position >= len(self._pattern):
            raise ValueError("ends in the middle of a group, a set [ ] or an escape")
        self.position += 1
        return self._pattern[self.position - 1]


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    sign, low, comma, high, _ = found.groups()
    if sign is not None:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
    if not low and not high:
        raise ValueError("has a { } without a number in it")
    least = int(low or 0)
    most = least if not comma else int(high) if high else None
    if max(least, most or 0) > _MAX_REPEAT or (most is not None and most < least):
        raise ValueError(f"may repeat {{m,n}} with m not above n and n at most {_MAX_REPEAT}")
    return least, most


def _limited(ways: int, unbounded: int) -> _Cost:
    if ways > MAX_WAYS:
        raise ValueError(f"can match in more than {MAX_WAYS} ways, so it could take too long")
    return _Cost(ways, unbounded)
