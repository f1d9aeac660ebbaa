"""Words that are one token each."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import tokenizers

from naiad_perf.workload.words import VOCABULARY, spelled, text_of, token_ids_of
from tests.harness.repository import MODEL_DIRECTORY


def test_there_are_256_different_words():
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 256
    assert all(word.isascii() and word.isalpha() and word.islower() for word in VOCABULARY)


def test_a_prompt_has_as_many_tokens_as_words_in_the_default_model():
    """With each word first once, for a word at the start has no space in front of it."""
    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL_DIRECTORY / "tokenizer.json"))
    source = random.Random(5)
    for first in range(256):
        numbers = [first, *source.choices(range(256), k=60)]
        assert len(tokenizer.encode(text_of(numbers), add_special_tokens=False).ids) == 61


def test_equal_words_have_equal_ids_and_unequal_ones_have_not():
    assert len(set(token_ids_of(range(256)))) == 256
    assert token_ids_of([3, 3, 9]) == token_ids_of([3]) * 2 + token_ids_of([9])
    assert min(token_ids_of(range(256))) == 1_000
    assert max(token_ids_of(range(256))) == 26_500


@pytest.mark.parametrize("length", [1, 2, 3])
def test_spelled_numbers_are_unequal_and_neighbours_differ_at_once(length: int):
    values = range(1000, 1000 + min(256**length, 2000))
    digits = [spelled(value, length) for value in values]
    assert len(set(digits)) == len(digits)
    assert all(len(each) == length for each in digits)
    assert all(one[0] != other[0] for one, other in pairwise(digits))
