"""The grammar that forbids words, run by a matcher of its own and compared with plain search."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.engines.forbidden_text import forbid

_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})")
_CLASS = re.compile(rf"\[(\^?)((?:{_ESCAPE.pattern})*)\] (s\d+)")


@dataclass
class Alternative:
    """`[characters] rule` or `[^characters] rule`."""

    negated: bool
    characters: set[str]
    rule: str

    def takes(self, character: str) -> bool:
        return (character in self.characters) != self.negated


class RightRecursiveGrammar:
    """Reads xgrammar's EBNF as far as a regular language needs it, and refuses anything else."""

    def __init__(self, text: str) -> None:
        lines = text.splitlines()
        assert lines[0] == "root ::= s0"
        self.rules: dict[str, list[Alternative]] = {}
        self.may_end: set[str] = set()
        for line in lines[1:]:
            name, separator, body = line.partition(" ::= ")
            assert separator
            assert name not in self.rules, f"{name} stands twice"
            self.rules[name] = [
                found for part in body.split(" | ") if (found := self._alternative(name, part)) is not None
            ]
        used = {alternative.rule for rule in self.rules.values() for alternative in rule}
        assert used <= self.rules.keys(), f"undefined: {used - self.rules.keys()}"

    def _alternative(self, name: str, part: str) -> Alternative | None:
        if part == '""':
            self.may_end.add(name)
            return None
        found = _CLASS.fullmatch(part)
        assert found, f"not in the grammar's form: {part!r}"
        escaped = found.group(2)
        characters = {chr(int(short or long, 16)) for short, long in _ESCAPE.findall(escaped)}
        return Alternative(found.group(1) == "^", characters, found.groups()[-1])

    def accepts(self, text: str) -> bool:
        """Follow every alternative at once, so that overlapping ones count too."""
        states = {"s0"}
        for character in text:
            states = {
                alternative.rule
                for state in states
                for alternative in self.rules[state]
                if alternative.takes(character)
            }
        return bool(states & self.may_end)


def holds_none(text: str, words: list[str]) -> bool:
    return not any(word in text for word in words)


@pytest.mark.parametrize(
    "words",
    [
        ["a"],
        ["ab"],
        ["aab"],
        ["aba", "bab"],
        ["ab", "b"],
        ["a", "abc"],
        ["abcab", "bca"],
        ["abc", "bc", "cab"],
        ["aa", "aa"],
        ["abab", "ba", "c"],
        ["aaaa"],
        ["a", "b", "c"],
    ],
)
def test_it_accepts_every_short_text_without_the_words_and_no_other(words):
    grammar = RightRecursiveGrammar(forbid(words))
    for length in range(7):
        for characters in itertools.product("abcx", repeat=length):
            text = "".join(characters)
            assert grammar.accepts(text) == holds_none(text, words), (text, words)


WORDS = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=5)
SPECIAL = "]\\^-[\"'|\n \t\u0000é你\U0001f600\U0010ffff"


@given(WORDS, st.text("abc", max_size=24))
def test_it_agrees_with_search(words, text):
    assert RightRecursiveGrammar(forbid(words)).accepts(text) == holds_none(text, words)


@given(
    st.lists(st.text(SPECIAL, min_size=1, max_size=3), min_size=1, max_size=4), st.text(SPECIAL, max_size=12)
)
def test_it_agrees_with_search_for_characters_with_a_meaning_in_grammars(words, text):
    assert RightRecursiveGrammar(forbid(words)).accepts(text) == holds_none(text, words)


@given(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=3), st.text(max_size=8), st.data())
def test_a_text_with_a_word_inside_is_always_refused(words, text, data):
    cut = data.draw(st.integers(0, len(text)))
    word = data.draw(st.sampled_from(words))
    assert not RightRecursiveGrammar(forbid(words)).accepts(text[:cut] + word + text[cut:])


@pytest.mark.parametrize("character", SPECIAL)
def test_a_character_with_a_meaning_in_grammars_stands_for_itself(character):
    text = forbid([character])
    assert text.isascii()
    grammar = RightRecursiveGrammar(text)
    assert not grammar.accepts(character)
    assert not grammar.accepts(f"a{character}b")
    assert grammar.accepts("a")
    assert grammar.accepts("")


def test_the_grammar_grows_with_the_words_not_with_their_product():
    words = [f"{first}{second}{third}" for first in "abc" for second in "def" for third in "ghi"]
    rules = forbid(words).splitlines()
    assert len(rules) == 1 + 1 + 3 + 9  # root, start, and one rule a proper prefix


def test_no_words_forbid_nothing():
    grammar = RightRecursiveGrammar(forbid([]))
    assert grammar.accepts("anything at all")
