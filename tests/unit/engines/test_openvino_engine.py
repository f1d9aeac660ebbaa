"""The real CPU engine under the step loop, with the prepared default model and a KV cache of 15 blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from naiad.contract.errors import EngineUnavailable, PromptTooLong, Unsupported
from naiad.contract.generation import FinishReason, GenerationRequest, SamplingParams
from naiad.engines import EngineLimits, EngineStats, StepLoop
from naiad.engines import openvino as openvino_engine
from naiad.engines.openvino import BLOCK_TOKENS, OpenVinoStepper
from naiad.engines.openvino_settings import OpenVinoSettings
from naiad.settings.model_directory import DEFAULT_MODEL_DIRECTORY, ModelDirectory, resolve_model_directory
from naiad.tokenization import Tokenizer
from tests.harness.recording_sink import RecordingSink

pytestmark = pytest.mark.openvino

ROOT = Path(__file__).parents[3]
KV_TOKENS = 500  # not a whole number of blocks: 15 of them and a rest
CAPITAL = "The capital of France is"
HELLO = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
STOP, LENGTH, CANCELLED = FinishReason.STOP, FinishReason.LENGTH, FinishReason.CANCELLED
DEADLINE_S = 60.0


@dataclass
class RealEngine:
    """The loop over the real engine, fed with text."""

    loop: StepLoop
    tokenizer: Tokenizer
    end_ids: frozenset[int]

    def submit(self, prompt: str | tuple[int, ...], max_tokens: int, **sampling: object) -> RecordingSink:
        ids = self.encode(prompt) if isinstance(prompt, str) else prompt
        sampling.setdefault("end_ids", self.end_ids)
        sink = RecordingSink()
        name = str(sampling.pop("name", ""))
        self.loop.submit(GenerationRequest(name, ids, SamplingParams(max_tokens, **sampling)), sink)  # type: ignore[arg-type]
        return sink

    def answer(self, prompt: str | tuple[int, ...], max_tokens: int, **sampling: object) -> list[int]:
        sink = self.submit(prompt, max_tokens, **sampling)
        sink.reason(DEADLINE_S)
        return sink.ids

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids)

    def idle_stats(self) -> EngineStats:
        """Wait until nothing is live and the loop has taken the engine's own counts."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            stats = self.loop.stats()
            if stats.active == 0 and stats.generation == 0:
                return stats
            time.sleep(0.01)
        raise AssertionError(f"not idle: {self.loop.stats()}")


@pytest.fixture(scope="module")
def engine() -> Iterator[RealEngine]:
    """Load once; an unprepared model is an error that says what to do, not a skip."""
    directory = ModelDirectory.load(
        resolve_model_directory(str(ROOT / DEFAULT_MODEL_DIRECTORY), None, environment={})
    )
    end_ids = frozenset(directory.eos_ids)
    limits = EngineLimits(directory.vocab_size, directory.context_length, KV_TOKENS, end_ids)
    stepper = OpenVinoStepper(OpenVinoSettings(directory.path, KV_TOKENS, dynamic_quantization=False), limits)
    loop = StepLoop(stepper, max_waiting=64, poll_period_s=0.02)
    yield RealEngine(loop, Tokenizer.load(directory.path), end_ids)
    loop.close()


def test_a_greedy_answer_knows_the_capital_of_france(engine):
    assert "Paris" in engine.text(engine.answer(CAPITAL, 3))


def test_log_probabilities_are_real_when_greedy(engine):
    sink = engine.submit(CAPITAL, 6, log_probs=True)
    assert sink.reason(DEADLINE_S) is LENGTH
    assert len(sink.log_probs) == 6
    assert all(-20 < value < 0 for value in sink.log_probs)
    assert len(set(sink.log_probs)) == 6


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others(engine):
    sampling = {"temperature": 1.0, "top_k": 50, "top_p": 0.95, "seed": 7}
    first = engine.answer("Once upon a time", 8, **sampling)
    assert engine.answer("Once upon a time", 8, **sampling) == first
    sampling["seed"] = 2**64 - 1  # the contract's largest
    assert engine.answer("Once upon a time", 8, **sampling) != first


def test_an_end_id_ends_the_answer_unless_too_early(engine):
    plain = engine.submit(HELLO, 40)
    assert plain.reason(DEADLINE_S) is STOP
    assert not engine.end_ids & set(plain.ids)
    least = len(plain.ids) + 2
    held = engine.submit(HELLO, least + 1, min_tokens=least)
    held.reason(DEADLINE_S)
    assert len(held.ids) >= least
    assert not engine.end_ids & set(held.ids)


def test_without_end_ids_the_answer_runs_to_its_length(engine):
    sink = engine.submit(HELLO, 40, end_ids=frozenset())
    assert sink.reason(DEADLINE_S) is LENGTH
    assert engine.end_ids & set(sink.ids)


def test_a_stop_sequence_ends_the_answer_and_is_its_last_part(engine):
    whole = engine.answer(CAPITAL, 8)
    wanted = tuple(whole[2:4])
    sink = engine.submit(CAPITAL, 8, stop_sequences=((1, 1, 1), wanted))
    assert sink.reason(DEADLINE_S) is STOP
    assert sink.ids == whole[:4]


def test_bad_words_never_appear(engine):
    bad = (engine.encode("Paris"), engine.encode(" south"))
    sink = engine.submit(CAPITAL, 10, bad_sequences=bad, end_ids=frozenset())
    assert sink.reason(DEADLINE_S) is LENGTH
    assert "Paris" not in engine.text(sink.ids)
    assert " south" not in engine.text(sink.ids)
    assert len(sink.ids) == 10


def test_bad_words_stay_in_force_when_the_model_ends_a_turn_that_goes_on(engine):
    """The grammar has ended there; the engine must neither fail nor stop."""
    end_ids: frozenset[int] = frozenset()
    plain = engine.answer(HELLO, 12, end_ids=end_ids)
    unlikely = engine.encode(" zebra")
    assert engine.answer(HELLO, 12, end_ids=end_ids, bad_sequences=(unlikely,)) == plain


@pytest.mark.parametrize("count", [65, 200])
def test_more_bad_words_than_the_engine_takes_are_refused_by_name(engine, count):
    with pytest.raises(Unsupported, match=r"bad_words_list .* 64"):
        engine.submit(CAPITAL, 2, bad_sequences=tuple((1000 + index,) for index in range(count)))


def test_a_bad_word_that_is_no_text_is_refused_by_name(engine):
    """A lone byte of a longer character; to forget it would be to serve what was to be avoided."""
    (lone, *_) = engine.encode("\U0001f9ff")
    assert engine.text([lone]).strip("\ufffd") == ""
    sink = engine.submit(CAPITAL, 2, bad_sequences=((lone,),))
    error = sink.failure(DEADLINE_S)
    assert isinstance(error, Unsupported)
    assert "bad_words_list" in error.message


def test_one_token_is_one_token(engine):
    sink = engine.submit(CAPITAL, 1)
    assert sink.reason(DEADLINE_S) is LENGTH
    assert len(sink.ids) == 1


def test_eight_at_once_get_the_tokens_they_get_alone(engine):
    requests: list[tuple[str, dict[str, object]]] = [
        (f"{subject} is", {"top_k": 40, "top_p": 0.9, "seed": index} if index % 2 else {})
        for index, subject in enumerate(
            [
                "Water",
                "The moon",
                "A cat",
                "My name",
                "Love",
                "Two plus two",
                "The largest river in Asia",
                "It",
            ]
        )
    ]
    alone = [engine.answer(prompt, 6, **sampling) for prompt, sampling in requests]
    sinks = [engine.submit(prompt, 6, **sampling) for prompt, sampling in requests]
    for sink in sinks:
        sink.reason(DEADLINE_S)
    assert [sink.ids for sink in sinks] == alone


def test_more_work_than_the_kv_cache_holds_is_all_finished(engine):
    prompts = [tuple(range(1000 * index, 1000 * index + 62)) for index in range(1, 7)]
    output = 8
    at_first, at_last = (sum(-(-(62 + done) // BLOCK_TOKENS) for _ in prompts) for done in (0, output))
    assert at_first < KV_TOKENS // BLOCK_TOKENS < at_last  # all start, then some have to make room
    sinks = [engine.submit(prompt, output, end_ids=frozenset()) for prompt in prompts]
    for sink in sinks:
        assert sink.reason(DEADLINE_S) is LENGTH
        assert len(sink.ids) == output
    assert engine.idle_stats().kv_blocks_used == 0


def test_a_request_that_fills_the_kv_cache_is_served_and_a_larger_one_refused(engine):
    blocks = engine.loop.limits.kv_capacity_tokens
    assert blocks == KV_TOKENS // BLOCK_TOKENS * BLOCK_TOKENS
    prompt = tuple(range(2000, 2000 + blocks - 3))
    sink = engine.submit(prompt, 3, end_ids=frozenset())
    assert sink.reason(DEADLINE_S) is LENGTH
    with pytest.raises(PromptTooLong, match=f"KV cache of {blocks} tokens"):
        engine.submit(prompt, 4)


def test_a_cancelled_request_gives_its_kv_blocks_back(engine):
    sink = engine.submit(tuple(range(3000, 3100)), 300, name="long", end_ids=frozenset())
    deadline = time.monotonic() + DEADLINE_S
    while engine.loop.stats().kv_blocks_used < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.loop.stats().kv_blocks_used >= 3
    assert engine.loop.stats().generation == 1
    engine.loop.stop("long")
    assert sink.reason(DEADLINE_S) is CANCELLED
    assert len(sink.ids) < 300
    assert engine.idle_stats().kv_blocks_used == 0
    whole = engine.submit(tuple(range(4000, 4000 + engine.loop.limits.kv_capacity_tokens - 1)), 1)
    assert whole.reason(DEADLINE_S) is LENGTH  # it needs every block there is


def test_a_step_that_fails_costs_what_was_running_and_nothing_else(engine, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(openvino_engine, "forbid", lambda words: "root ::= (")
        neighbour = engine.submit(CAPITAL, 300, end_ids=frozenset())
        broken = engine.submit(CAPITAL, 3, bad_sequences=(engine.encode("Paris"),))
        for sink in (neighbour, broken):
            error = sink.failure(DEADLINE_S)
            assert isinstance(error, EngineUnavailable)
            assert error.retryable
    assert "Paris" in engine.text(engine.answer(CAPITAL, 3))
