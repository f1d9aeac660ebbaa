"""The step-time model: what it answers, how long it says it takes, and what it counts."""

from __future__ import annotations

import pytest

from naiad.contract.errors import Unsupported
from naiad.contract.generation import FinishReason, GenerationRequest, SamplingParams
from naiad.engines import EngineLimits
from naiad.engines.synthetic import SyntheticStepper, SyntheticTiming

LIMITS = EngineLimits(vocab_size=100, max_seq_len=1000, kv_capacity_tokens=640, end_ids=frozenset({0, 9}))


class Sleeps(list[float]):
    """Durations slept, in place of sleeping."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def stepper(**options) -> tuple[SyntheticStepper, Sleeps]:
    sleeps = Sleeps()
    timing = options.pop("timing", SyntheticTiming())
    return SyntheticStepper(LIMITS, timing, max_sequences=8, sleep=sleeps, **options), sleeps


def add(engine: SyntheticStepper, key: int, prompt: tuple[int, ...], max_tokens: int = 100) -> None:
    engine.add(key, GenerationRequest(str(key), prompt, SamplingParams(max_tokens)))


def run(engine: SyntheticStepper, key: int) -> tuple[list[int], FinishReason]:
    """Step until the sequence ends."""
    ids: list[int] = []
    for _ in range(1000):
        for result in engine.step():
            if result.key == key:
                ids += result.ids
                assert result.log_probs == [-0.5] * len(result.ids)
                if result.finish_reason is not None:
                    return ids, result.finish_reason
    raise AssertionError(f"no end after {ids}")


def test_it_echoes_the_prompt_over_and_over_to_the_length():
    engine, _ = stepper()
    add(engine, 1, (5, 6, 7), max_tokens=8)
    assert run(engine, 1) == ([5, 6, 7, 5, 6, 7, 5, 6], FinishReason.LENGTH)


def test_the_echo_leaves_the_models_end_ids_out():
    engine, _ = stepper()
    add(engine, 1, (0, 5, 9, 6, 0), max_tokens=4)
    assert run(engine, 1) == ([5, 6, 5, 6], FinishReason.LENGTH)


def test_a_prompt_of_end_ids_alone_is_echoed_as_it_is():
    engine, _ = stepper()
    add(engine, 1, (0, 9), max_tokens=2)
    assert run(engine, 1) == ([0, 9], FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("max_tokens", "answer"),
    [
        (9, ([1, 2, 3], FinishReason.STOP)),
        (3, ([1, 2, 3], FinishReason.LENGTH)),
        (2, ([1, 2], FinishReason.LENGTH)),
    ],
)
def test_a_script_is_said_once_whatever_the_prompt(max_tokens, answer):
    engine, _ = stepper(script=[1, 2, 3])
    add(engine, 1, (50, 60), max_tokens=max_tokens)
    assert run(engine, 1) == answer


def test_the_same_requests_take_the_same_steps():
    def record() -> tuple[list[object], Sleeps]:
        timing = SyntheticTiming(1000.0, 0.01, 0.001, max_num_tokens=7)
        engine, sleeps = stepper(timing=timing)
        results: list[object] = []
        for key in range(1, 6):
            add(engine, key, tuple(range(10, 10 + 3 * key)), max_tokens=4 + key)
            results.append(engine.step())
        while engine.stats().generation + engine.stats().context:
            results.append(engine.step())
        return results, sleeps

    assert record() == record()


@pytest.mark.parametrize(
    ("prefill", "decoding", "duration_s"),
    [(0, 0, 0.0), (100, 0, 0.1), (0, 1, 0.021), (0, 8, 0.028), (50, 2, 0.05 + 0.022)],
)
def test_a_step_takes_the_time_of_its_prefill_and_of_its_sequences(prefill, decoding, duration_s):
    timing = SyntheticTiming(prefill_tokens_per_s=1000.0, step_s=0.02, step_per_sequence_s=0.001)
    assert timing.duration_s(prefill, decoding) == pytest.approx(duration_s)


def test_no_prefill_rate_means_instant_prefill():
    assert SyntheticTiming(0.0, 0.5).duration_s(10**6, 0) == 0.0


def test_it_sleeps_what_the_formula_says_step_by_step():
    engine, sleeps = stepper(timing=SyntheticTiming(1000.0, 0.02, 0.001))
    add(engine, 1, (5,) * 40, max_tokens=3)
    engine.step()  # prefill of 40
    add(engine, 2, (5,) * 10, max_tokens=2)
    engine.step()  # one decodes while 10 are prefilled
    engine.step()  # both decode
    assert sleeps == pytest.approx([0.04, 0.01 + 0.021, 0.022])


def test_an_instant_model_never_sleeps():
    engine, sleeps = stepper()
    add(engine, 1, (5, 6), max_tokens=3)
    run(engine, 1)
    assert sleeps == []


def test_prompts_are_prefilled_in_chunks_while_others_decode():
    engine, sleeps = stepper(timing=SyntheticTiming(1000.0, 0.0, 0.001, max_num_tokens=10))
    add(engine, 1, (5,))
    assert [result.key for result in engine.step()] == [1]
    add(engine, 2, (6,) * 25)
    add(engine, 3, (7,) * 6)
    per_step = [sorted(result.key for result in engine.step()) for _ in range(5)]
    # 31 tokens at 10 a step: the first of sequence 2 comes with its last chunk, whose rest serves sequence 3.
    assert per_step == [[1], [1], [1, 2], [1, 2, 3], [1, 2, 3]]
    assert sleeps == pytest.approx([0.001, 0.011, 0.011, 0.011, 0.001 + 0.002, 0.003])


def test_stats_count_the_blocks_that_the_tokens_fill():
    engine, _ = stepper(timing=SyntheticTiming(max_num_tokens=40))
    assert engine.stats().kv_blocks_max == 640 // 32
    add(engine, 1, (5,) * 32)
    add(engine, 2, (5,) * 33)
    stats = engine.stats()
    assert (stats.kv_blocks_used, stats.context, stats.context_tokens, stats.generation) == (3, 2, 65, 0)
    engine.step()  # 32 + 8 tokens; sequence 1 yields its first
    stats = engine.stats()
    assert (stats.kv_blocks_used, stats.context, stats.context_tokens, stats.generation) == (4, 1, 25, 1)
    assert (stats.max_active, stats.kv_tokens_per_block, stats.iterations) == (8, 32, 1)
    engine.abort(1)
    engine.abort(1)
    assert engine.stats().kv_blocks_used == 2
    engine.rebuild()
    assert engine.stats().kv_blocks_used == 0


def test_an_ended_sequence_is_reported_once_and_forgotten():
    engine, _ = stepper()
    add(engine, 1, (5,), max_tokens=1)
    (result,) = engine.step()
    assert result.finish_reason is FinishReason.LENGTH
    assert engine.step() == []
    assert engine.stats().kv_blocks_used == 0


def test_bad_words_are_refused_by_name():
    engine, _ = stepper()
    with pytest.raises(Unsupported, match="bad_words_list"):
        engine.check(GenerationRequest("a", (1,), SamplingParams(1, bad_sequences=((1,),))))
    engine.check(GenerationRequest("a", (1,), SamplingParams(1, stop_sequences=((1,),))))
