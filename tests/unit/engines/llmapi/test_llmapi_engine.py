"""The LLM API's engine, over a double of the calls it makes: there was no GPU to run the library on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from naiad.contract.errors import EngineUnavailable, InvalidArgument, Unsupported
from naiad.contract.generation import FinishReason, GenerationRequest, SamplingParams
from naiad.engines import StepLoop
from naiad.engines.base import EngineLimits
from naiad.engines.llmapi import LlmApiStepper
from naiad.engines.llmapi_settings import LlmApiSettings
from tests.harness.polling import poll
from tests.harness.recording_sink import RecordingSink
from tests.harness.tensorrt_llm_double import DEADLY, LLM, REFUSED


def asked(engine: StepLoop, prompt: tuple[int, ...] = (1, 2, 3), **sampling: object) -> RecordingSink:
    given = SamplingParams(**{"max_tokens": 5, **sampling})  # type: ignore[arg-type]
    sink = RecordingSink()
    engine.submit(GenerationRequest("", prompt, given), sink)
    return sink


def test_tokens_come_one_by_one_and_end_at_their_number(engine: StepLoop) -> None:
    sink = asked(engine)
    assert sink.reason() is FinishReason.LENGTH
    assert sink.ids == [4, 5, 6, 7, 8]
    assert not sink.violations


@pytest.mark.parametrize(
    ("ends", "ids", "probs"),
    [
        ({6}, [4, 5], [-0.5, -0.625]),  # the only end is the library's own `end_id`
        ({7, 50, 80}, [4, 5, 6], [-0.5, -0.625, -0.75]),  # further ones are its stop tokens
        ({50, 80}, [4, 5, 6, 7, 8], [-0.5, -0.625, -0.75, -0.875, -1.0]),
        (set(), [4, 5, 6, 7, 8], [-0.5, -0.625, -0.75, -0.875, -1.0]),
    ],
)
def test_an_end_is_no_part_of_the_answer_nor_is_its_log_probability(
    engine: StepLoop, ends: set[int], ids: list[int], probs: list[float]
) -> None:
    sink = asked(engine, end_ids=frozenset(ends), log_probs=True)
    assert sink.reason() is (FinishReason.STOP if len(ids) < 5 else FinishReason.LENGTH)
    assert sink.ids == ids
    assert [value for chunk in sink.chunks for value in chunk.log_probs] == probs


def test_a_stop_word_ends_the_answer_and_the_library_is_told(engine: StepLoop) -> None:
    LLM.step_s = 0.005
    sink = asked(engine, stop_sequences=((5, 6),), max_tokens=400)
    assert sink.reason() is FinishReason.STOP
    assert sink.ids == [4, 5, 6]
    poll(lambda: LLM.made[0].outputs[0].aborted)


def test_a_cancelled_caller_frees_the_sequence(engine: StepLoop) -> None:
    LLM.step_s = 0.005
    sink = asked(engine, max_tokens=400)
    poll(lambda: bool(sink.ids))
    sink.cancel()
    assert sink.reason() is FinishReason.CANCELLED
    poll(lambda: LLM.made[0].outputs[0].aborted)
    poll(lambda: engine.stats().generation == 0)


def test_many_are_served_at_once(engine: StepLoop) -> None:
    LLM.step_s = 0.002
    sinks = [asked(engine, (first,), max_tokens=20) for first in range(4)]
    for first, sink in enumerate(sinks):
        assert sink.reason() is FinishReason.LENGTH
        assert sink.ids == list(range(first + 1, first + 21))


def test_what_was_asked_is_what_the_library_is_told(engine: StepLoop) -> None:
    sink = asked(
        engine,
        temperature=0.5,
        top_k=7,
        top_p=0.8,
        seed=11,
        min_tokens=2,
        repetition_penalty=1.2,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        bad_sequences=((9,), (10,)),
        end_ids=frozenset({5, 0}),
    )
    assert sink.reason() is FinishReason.LENGTH  # 5 came before two tokens, so it ended nothing
    told = LLM.made[0].sampling[0]
    assert (told.temperature, told.top_k, told.top_p, told.seed) == (0.5, 7, 0.8, 11)
    assert (told.repetition_penalty, told.presence_penalty, told.frequency_penalty) == (1.2, 0.5, -0.5)
    assert (told.end_id, told.stop_token_ids, told.bad_token_ids) == (0, [5], [9, 10])
    assert (told.max_tokens, told.min_tokens, told.detokenize) == (5, 2, False)


def test_greedy_is_told_as_the_likeliest_alone(engine: StepLoop) -> None:
    assert asked(engine, seed=3).reason() is FinishReason.LENGTH
    told = LLM.made[0].sampling[0]
    assert (told.top_k, told.temperature, told.seed) == (1, None, None)


def test_sampling_without_a_seed_is_not_the_same_every_time(engine: StepLoop) -> None:
    for _ in range(2):
        asked(engine, top_p=0.9).reason()
    first, second = (sampling.seed for sampling in LLM.made[0].sampling)
    assert first != second


def test_a_bad_word_of_several_tokens_is_refused_by_name(engine: StepLoop) -> None:
    with pytest.raises(Unsupported, match="bad_words_list"):
        asked(engine, bad_sequences=((1, 2),))


@pytest.mark.parametrize(
    ("prompt", "error"), [((REFUSED,), EngineUnavailable), ((1,) * 449, InvalidArgument)]
)
def test_a_request_that_the_library_refuses_harms_no_other(
    engine: StepLoop, prompt: tuple[int, ...], error: type[Exception]
) -> None:
    refused, other = asked(engine, prompt), asked(engine)
    assert isinstance(refused.failure(), error)
    assert other.reason() is FinishReason.LENGTH
    assert len(LLM.made) == 1


def test_an_engine_that_dies_is_loaded_again(engine: StepLoop) -> None:
    LLM.step_s = 0.005
    beside = asked(engine, max_tokens=400)
    poll(lambda: bool(beside.ids))
    assert isinstance(asked(engine, (DEADLY,)).failure(), EngineUnavailable)
    assert isinstance(beside.failure(), EngineUnavailable)
    assert asked(engine).reason() is FinishReason.LENGTH
    assert [llm.ended for llm in LLM.made] == [True, False]


def test_closing_ends_the_library(tmp_path: Path) -> None:
    limits = EngineLimits(vocab_size=100, max_seq_len=500, kv_capacity_tokens=500, end_ids=frozenset({0}))
    stepper = LlmApiStepper(LlmApiSettings(tmp_path, {"max_batch_size": 4}), limits)
    assert (LLM.made[0].model, LLM.made[0].skip_tokenizer_init) == (str(tmp_path), True)
    stepper.close()
    assert LLM.made[0].ended


def test_without_the_library_the_load_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt_llm", None)
    limits = EngineLimits(vocab_size=100, max_seq_len=500, kv_capacity_tokens=500, end_ids=frozenset({0}))
    with pytest.raises(InvalidArgument, match=r"needs the package tensorrt_llm 1\.2\.1"):
        LlmApiStepper(LlmApiSettings(tmp_path, {"max_batch_size": 4}), limits)
