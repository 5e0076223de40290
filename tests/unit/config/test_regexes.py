"""Which regular expressions are accepted, and that those are fast."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.config.regexes import linear_regex


@pytest.mark.parametrize("pattern", [
    "python.*", ".*foo.*", "(foo|bar)baz?", "[a-z_]+[0-9]{1,3}", "a|b|", "(?:ab)*c", r"\d+\.\w", "[]a]", "[^]]",
    "x{2}", "x{,3}", "a*?b", "(a*|b)c.*", "^a$",
])
def test_useful_patterns_are_accepted(pattern: str) -> None:
    """What operators match with: words, alternatives, globs."""
    re.compile(linear_regex(pattern))


@pytest.mark.parametrize("pattern", [
    "(a+)+", "(a|a)*", "(a|b)+", "(a?){50}", "a?" * 20, "(a|a)" * 20, ".*.*x", ".*a.*b", "(.*a){3}", r"(a)\1",
    "(?=a)", "(?<!a)b", "(?i)a", "(?P<n>a)", "a++", "a**", "*a", "a{", "{2}", "a{5,2}", "a{999}", "(a", "a)", "[a",
    "a\\", r"\p", r"\x41", "[[a]", "[a--b]", "[z-a]", "", "a" * 201, "(" * 20 + ")" * 20, "(.*)(.*)",
])
def test_others_are_refused(pattern: str) -> None:
    """With a sentence, never another error."""
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        linear_regex(pattern)


SIGNS = st.text(alphabet="ab.*+?{}[]()|^$\\1,2-:=dw", max_size=16)


@settings(max_examples=500, deadline=None)
@given(SIGNS | st.text(max_size=12))
def test_what_is_accepted_compiles_and_is_fast(pattern: str) -> None:
    """A text made to backtrack costs no more than a plain walk over it."""
    try:
        compiled = re.compile(linear_regex(pattern))
    except ValueError:
        return
    started = time.thread_time()
    compiled.fullmatch("ab" * 500 + "\n")
    compiled.fullmatch("a" * 1000 + "!")
    assert time.thread_time() - started < 0.5
