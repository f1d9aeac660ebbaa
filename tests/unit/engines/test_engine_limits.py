"""What an engine refuses before it costs engine time, with both numbers in the message."""

from __future__ import annotations

import pytest

from naiad.contract.errors import InvalidArgument, PromptTooLong
from naiad.contract.generation import GenerationRequest, SamplingParams
from naiad.engines import EngineLimits

VOCAB, CONTEXT = 50, 12


def limits(*, kv: int = 1000) -> EngineLimits:
    return EngineLimits(vocab_size=VOCAB, max_seq_len=CONTEXT, kv_capacity_tokens=kv, end_ids=frozenset({0}))


def request(
    prompt: tuple[int, ...] = (1,),
    max_tokens: int = 1,
    *,
    stop: tuple[tuple[int, ...], ...] = (),
    bad: tuple[tuple[int, ...], ...] = (),
) -> GenerationRequest:
    return GenerationRequest("a", prompt, SamplingParams(max_tokens, stop_sequences=stop, bad_sequences=bad))


@pytest.mark.parametrize(
    "served",
    [
        request((0,)),
        request((VOCAB - 1, 0, VOCAB - 1)),
        request((1,) * 11, 1),
        request((1,), 11),
        request((1,) * 6, 6),
        request(stop=((0, VOCAB - 1),), bad=((VOCAB - 1,),)),
    ],
)
def test_everything_up_to_the_limit_is_accepted(served):
    limits().check(served)
    limits(kv=CONTEXT).check(served)


@pytest.mark.parametrize("prompt", [(-1,), (VOCAB,), (1, 2, -5), (2**40, 1), (1, VOCAB, 1)])
def test_token_ids_outside_the_vocabulary_are_refused(prompt):
    with pytest.raises(InvalidArgument, match=rf"input_ids .* outside the vocabulary \[0, {VOCAB}\)"):
        limits().check(request(prompt))


def test_an_empty_prompt_is_refused():
    with pytest.raises(InvalidArgument, match="input_ids is empty"):
        limits().check(request(()))


@pytest.mark.parametrize("words", [((VOCAB,),), ((1, 2), (3, -1))])
def test_word_lists_outside_the_vocabulary_are_refused_by_name(words):
    with pytest.raises(InvalidArgument, match=rf"stop_words_list .*\[0, {VOCAB}\)"):
        limits().check(request(stop=words))
    with pytest.raises(InvalidArgument, match=rf"bad_words_list .*\[0, {VOCAB}\)"):
        limits().check(request(bad=words))


@pytest.mark.parametrize(
    ("prompt", "wanted", "left"), [(12, 1, 0), (13, 1, 0), (11, 2, 1), (1, 12, 11), (6, 2**31 - 1, 6)]
)
def test_more_than_the_context_is_refused_with_both_numbers_and_what_fits(prompt, wanted, left):
    with pytest.raises(PromptTooLong) as refusal:
        limits().check(request((1,) * prompt, wanted))
    message = refusal.value.message
    assert f"prompt of {prompt} tokens plus {wanted} output tokens" in message
    assert f"the context of {CONTEXT} tokens" in message
    advice = "shorten the prompt" + (f" or ask for at most {left} output tokens" if left else "")
    assert message.endswith(advice)


def test_more_than_the_whole_kv_cache_is_refused_with_both_numbers():
    limits(kv=8).check(request((1,) * 4, 4))
    with pytest.raises(PromptTooLong, match=r"prompt of 4 tokens plus 5 .* KV cache of 8 tokens"):
        limits(kv=8).check(request((1,) * 4, 5))


def test_too_long_is_a_kind_of_invalid_and_is_not_worth_a_retry():
    with pytest.raises(InvalidArgument) as refusal:
        limits().check(request((1,) * 99))
    assert not refusal.value.retryable
