from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from naiad.contract.errors import InvalidArgument
from naiad.tokenization import IncrementalDetokenizer, Tokenizer

MARK = "\N{REPLACEMENT CHARACTER}"
FAMILY_EMOJI = "👨‍👩‍👧‍👦"
HARD = f"a {FAMILY_EMOJI}  你好世界 é́ 🇩🇪🏳️‍🌈 ▁ <0x41> 𝔘𝔫𝔦 ก็ \t\n the dog ."
FRAGMENTS = st.sampled_from(
    [
        FAMILY_EMOJI,
        "你好",
        "🇩🇪",
        "é́",
        " ",
        "  ",
        "▁",
        "<0x41>",
        "\n",
        "the",
        " dog",
        ".",
        " n't",
        "𝔘",
        "</s>",
        "0",
    ]
)
TEXTS = st.lists(FRAGMENTS | st.text(max_size=6), max_size=12).map("".join)
SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=8)
SETTINGS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])

ROUND_TRIP = ["byte_level", "llama", "gguf_llama", "gemma", "byte_level_in_a_chain"]


def streamed(detokenizer: IncrementalDetokenizer, ids: list[int], sizes: list[int]) -> list[str]:
    """The deltas of `ids` in chunks of `sizes`, taken in turn, and of the final flush."""
    deltas, start, turn = [], 0, 0
    while start < len(ids):
        size = sizes[turn % len(sizes)]
        deltas.append(detokenizer.push(ids[start : start + size]))
        start, turn = start + size, turn + 1
    return [*deltas, detokenizer.flush()]


def random_ids(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=60)


@SETTINGS
@given(data=st.data(), sizes=SIZES, skip=st.booleans())
def test_joined_deltas_equal_the_one_shot_text_for_any_ids(family, data, sizes, skip):
    ids = data.draw(random_ids(family.ours))
    deltas = streamed(family.ours.detokenizer(skip_special_tokens=skip), ids, sizes)
    assert "".join(deltas) == family.ours.decode(ids, skip_special_tokens=skip)


@SETTINGS
@given(data=st.data(), skip=st.booleans())
def test_one_shot_text_equals_the_library_for_ids_that_spell_text(family, data, skip):
    ids = data.draw(random_ids(family.ours))
    expected = family.library.decode(ids, skip_special_tokens=skip)
    if MARK not in expected:
        assert family.ours.decode(ids, skip_special_tokens=skip) == expected


@SETTINGS
@given(text=TEXTS, sizes=SIZES, skip=st.booleans())
def test_encoded_text_streams_back_as_the_library_decodes_it(family, text, sizes, skip):
    ids = family.ours.encode(text)
    expected = family.library.decode(ids, skip_special_tokens=skip)
    assert "".join(streamed(family.ours.detokenizer(skip_special_tokens=skip), ids, sizes)) == expected


@pytest.mark.parametrize("name", ROUND_TRIP)
@SETTINGS
@given(text=TEXTS.filter(lambda text: MARK not in text), sizes=SIZES)
def test_no_delta_of_valid_text_has_a_replacement_character(families, name, text, sizes):
    tokenizer = families[name].ours
    deltas = streamed(tokenizer.detokenizer(), tokenizer.encode(text), sizes)
    assert not any(MARK in delta for delta in deltas)


@pytest.mark.parametrize("name", ROUND_TRIP)
def test_a_cut_at_any_token_leaves_a_prefix_of_the_text(families, name):
    tokenizer = families[name].ours
    ids = tokenizer.encode(HARD)
    whole = tokenizer.decode(ids)
    lengths = set()
    for count in range(len(ids) + 1):
        kept = tokenizer.decode(ids[:count])
        assert whole.startswith(kept)
        assert MARK not in kept
        lengths.add(len(kept))
    assert len(lengths) < len(ids) + 1, "some cut must fall inside a character, or this shows nothing"
    assert len(whole) in lengths


@pytest.mark.parametrize("name", ["byte_level", "llama", "gemma"])
def test_a_character_comes_out_with_its_last_byte_and_not_before(families, name):
    tokenizer = families[name].ours
    space_and_emoji = tokenizer.encode("🜚", add_special_tokens=False)
    detokenizer = tokenizer.detokenizer()
    deltas = [detokenizer.push([token_id]) for token_id in space_and_emoji]
    assert "".join(deltas[:-1]) == ""
    assert deltas[-1] == "🜚"


def test_bytes_that_are_no_text_show_once_the_next_byte_proves_it(families):
    tokenizer, library = families["gemma"].ours, families["gemma"].library
    lead, letter = library.token_to_id("<0xF0>"), library.token_to_id("a")
    detokenizer = tokenizer.detokenizer()
    assert detokenizer.push([lead]) == ""
    assert detokenizer.push([letter]) == MARK + "a"


@pytest.mark.parametrize("name", ["byte_level", "llama", "gemma"])
def test_a_replacement_character_the_model_wrote_itself_is_kept(families, name):
    tokenizer = families[name].ours
    assert tokenizer.decode(tokenizer.encode(f"a{MARK}")) == f"a{MARK}"


@pytest.mark.parametrize("name", ["llama", "gguf_llama", "metaspace_bpe", "unigram"])
def test_only_the_first_word_loses_its_leading_space(families, name):
    tokenizer = families[name].ours
    detokenizer = tokenizer.detokenizer()
    ids = tokenizer.encode("the dog the dog")
    text = "".join(detokenizer.push([token_id]) for token_id in ids) + detokenizer.flush()
    assert text == "the dog the dog"


@pytest.mark.parametrize("name", ["llama", "gguf_llama", "metaspace_bpe"])
def test_a_text_that_begins_without_a_space_keeps_every_later_one(families, name):
    tokenizer, library = families[name].ours, families[name].library
    ids = [library.token_to_id("a"), library.token_to_id("▁"), library.token_to_id("b")]
    assert streamed(tokenizer.detokenizer(), ids, [1]) == ["a", " ", "b", ""]


def test_only_as_many_spaces_are_stripped_as_the_decoder_says(families):
    tokenizer, library = families["llama"].ours, families["llama"].library
    ids = [library.token_to_id("▁")] * 3 + [library.token_to_id("b")]
    assert streamed(tokenizer.detokenizer(), ids, [1]) == ["", " ", " ", "b", ""]


def test_an_added_token_outside_the_byte_alphabet_stands_for_itself(chatty):
    ids = chatty.ours.encode("a<｜think ▁｜>é")
    assert len(ids) < 6, "the added token must be one id"
    assert chatty.ours.decode(ids) == "a<｜think ▁｜>é"


def test_special_tokens_before_the_text_do_not_use_up_the_first_word(families):
    tokenizer = families["unigram"].ours
    ids = tokenizer.encode("the dog")
    assert tokenizer.decode([tokenizer.bos_id, *ids]) == "the dog"


def test_special_tokens_are_shown_only_when_asked_for(chatty):
    ids = chatty.ours.encode("a<|im_end|>b")
    assert chatty.ours.decode(ids) == "ab"
    assert chatty.ours.decode(ids, skip_special_tokens=False) == "a<|im_end|>b"


def test_flush_makes_the_detokenizer_as_new(family):
    detokenizer = family.ours.detokenizer()
    ids = family.ours.encode("the dog")
    first = detokenizer.push(ids) + detokenizer.flush()
    detokenizer.push(family.ours.encode("世")[:1])
    detokenizer.flush()
    assert detokenizer.push(ids) + detokenizer.flush() == first


@pytest.mark.parametrize("wrong", [-1, 10**6, 2**70])
def test_an_id_outside_the_vocabulary_is_refused_by_value_and_position(family, wrong):
    with pytest.raises(InvalidArgument, match=rf"token id {wrong} at position 1 is not in the vocabulary"):
        family.ours.decode([5, wrong])


def test_what_is_not_an_integer_is_refused(chatty):
    ids: Any = [5, 5.0]
    with pytest.raises(InvalidArgument, match="position 1 is a float"):
        chatty.ours.decode(ids)


def test_a_refused_chunk_changes_nothing(chatty):
    ids = chatty.ours.encode("你")
    detokenizer = chatty.ours.detokenizer()
    before = detokenizer.push(ids[:1])
    with pytest.raises(InvalidArgument):
        detokenizer.push([*ids[1:], -1])
    assert before + detokenizer.push(ids[1:]) == "你"


def test_long_runs_cost_the_same_per_token_in_every_family(family):
    # A growing prefix decoded anew for each token would take minutes here.
    ids = family.ours.encode("the dog sleeps. ") * 2000
    detokenizer = family.ours.detokenizer()
    started = time.process_time()
    for token_id in ids[:8000]:
        detokenizer.push([token_id])
    assert time.process_time() - started < 5


@pytest.mark.parametrize("name", ["byte_level", "llama", "unigram"])
def test_common_families_need_no_call_of_the_library_per_token(families, name, monkeypatch):
    tokenizer = families[name].ours
    ids = tokenizer.encode("the dog")

    def never(*_: object) -> str:
        raise AssertionError("decoded by the library")

    monkeypatch.setattr(Tokenizer, "_decode_shown", never)
    assert tokenizer.decode(ids) == "the dog"
