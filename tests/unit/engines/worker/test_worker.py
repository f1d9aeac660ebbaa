"""The engine in a process of its own: what callers get is what they get from the same stepper in process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from naiad.contract.errors import InternalError, NaiadError, PromptTooLong, Unsupported
from naiad.contract.generation import FinishReason, GenerationRequest
from naiad.engines import EngineLimits, StepLoop
from naiad.engines.openvino_settings import OpenVinoSettings
from naiad.engines.stepper import Stepper
from naiad.engines.synthetic import SyntheticStepper, SyntheticTiming
from naiad.engines.worker import WorkerStepper, _Worker
from naiad.settings.model_directory import DEFAULT_MODEL_DIRECTORY, ModelDirectory, resolve_model_directory
from naiad.tokenization import Tokenizer
from tests.harness.polling import poll
from tests.harness.recording_sink import RecordingSink
from tests.harness.synthetic_worker import HANGS, RAISES, REFUSED, PromptedStepper
from tests.harness.worker_bench import LIMITS, WorkerBench, request

ROOT = Path(__file__).parents[4]
STOP, LENGTH, CANCELLED = FinishReason.STOP, FinishReason.LENGTH, FinishReason.CANCELLED
DEADLINE_S = 60.0
SILENCE_S = 0.2


class FarEnd:
    """The far end on a thread, over a stepper that takes no time."""

    def __init__(self) -> None:
        self.near, self._far = Pipe()
        self.stepper = SyntheticStepper(LIMITS, SyntheticTiming(), max_sequences=256)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def read_until_finished(self, *keys: int) -> None:
        """Read messages until sequences of all these keys have ended."""
        left = set(keys)
        while left:
            assert self.near.poll(DEADLINE_S)
            _, results, _, _ = self.near.recv()
            left -= {key for key, _, _, reason in results if reason}

    def close(self) -> None:
        """Go away as a near end does, and see the far end go."""
        self.near.close()
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._far.close()

    def _serve(self) -> None:
        with suppress(EOFError, BrokenPipeError, ConnectionResetError):
            _Worker(self._far, self.stepper).run()


@pytest.fixture
def far_end() -> Iterator[FarEnd]:
    made = FarEnd()
    yield made
    made.close()


def outcomes(
    stepper: Stepper, requests: Sequence[GenerationRequest], *, at_once: bool = True
) -> list[tuple[Any, ...]]:
    """Submit all at once or one by one; return the tokens, log probabilities and end of each."""
    loop = StepLoop(stepper, max_waiting=len(requests))
    sinks = [RecordingSink() for _ in requests]
    try:
        for each, sink in zip(requests, sinks, strict=True):
            loop.submit(each, sink)
            if not at_once:
                sink.wait(DEADLINE_S)
        return [(sink.reason(DEADLINE_S), sink.ids, sink.log_probs) for sink in sinks]
    finally:
        loop.close()


def test_answers_are_those_of_the_same_stepper_in_process(settings: OpenVinoSettings) -> None:
    requests = [request(f"r{length}", range(1, length + 1), 3 * length) for length in (1, 2, 7, 40)]
    requests += [
        request("stop", (5, 6, 7, 8), 50, stop_sequences=((7, 8),)),
        request("end id", (5, 6, 9), 50, end_ids=frozenset({9})),
        request("large", range(10, 1000), 5),
        *(request(f"more {index}", (index,), 4) for index in range(20)),  # over what one batch holds
    ]
    in_process = outcomes(PromptedStepper(settings, LIMITS), requests)
    assert {reason for reason, _, _ in in_process} == {STOP, LENGTH}
    assert outcomes(WorkerStepper(settings, LIMITS), requests) == in_process


@pytest.mark.openvino
def test_the_real_engines_answers_and_limits_are_those_it_has_in_process() -> None:
    from naiad.engines.openvino import OpenVinoStepper

    directory = ModelDirectory.load(
        resolve_model_directory(str(ROOT / DEFAULT_MODEL_DIRECTORY), None, environment={})
    )
    settings = OpenVinoSettings(directory.path, kv_tokens=500, dynamic_quantization=False)
    limits = EngineLimits(directory.vocab_size, directory.context_length, 500, frozenset(directory.eos_ids))
    tokenizer = Tokenizer.load(directory.path)
    texts = ("The capital of France is", "A long time ago", "In Italy the capital is")
    france, once, italy = (tokenizer.encode(text) for text in texts)
    requests = [
        request("greedy", france, 8, log_probs=True),
        request("sampled", once, 8, temperature=1.0, top_k=40, top_p=0.9, seed=7, log_probs=True),
        request("bad words", italy, 8, bad_sequences=(tuple(tokenizer.encode(" Rome")),)),
    ]
    here = OpenVinoStepper(settings, limits)
    in_process = outcomes(here, requests, at_once=False)
    there = WorkerStepper(settings, limits)
    assert there.limits == here.limits != limits  # only whole blocks of the KV cache count
    assert outcomes(there, requests, at_once=False) == in_process
    assert [len(ids) for _, ids, _ in in_process] == [8, 8, 8]


def test_the_limits_and_the_settings_own_refusals_need_no_worker(bench: WorkerBench) -> None:
    """They reach the caller from `submit`, before anything is sent."""
    assert bench.loop.limits == LIMITS
    bench.process.suspend()
    try:
        with pytest.raises(PromptTooLong):
            bench.submit("long", (5,), LIMITS.max_seq_len)
        with pytest.raises(Unsupported, match="bad_words_list"):
            bench.submit("bad", (5,), 5, bad_sequences=((1,),) * 65)
    finally:
        bench.process.resume()


def test_sequences_beyond_the_batch_wait_for_a_place(settings: OpenVinoSettings) -> None:
    bench = WorkerBench(replace(settings, max_sequences=2))
    try:
        running = [bench.running("a"), bench.running("b")]
        third = bench.submit("c", (5,), 2)
        assert bench.loop.stats().waiting == 1
        bench.loop.stop("a")
        assert third.reason() is LENGTH
        assert not running[1].ended
    finally:
        bench.loop.close()


@pytest.mark.parametrize("company", [False, True], ids=["alone", "beside a running request"])
def test_what_the_engine_refuses_gets_its_own_error_and_nobody_else_does(
    bench: WorkerBench, company: bool
) -> None:
    neighbour = bench.running("neighbour") if company else None
    error = bench.submit("refused", (REFUSED,), 4).failure()
    assert type(error) is Unsupported
    assert (error.code, error.message) == ("UNSUPPORTED", "bad_words_list is refused here")
    assert not error.partial
    assert bench.answers()
    if neighbour is not None:
        so_far = len(neighbour.ids)
        poll(lambda: len(neighbour.ids) > so_far)


def test_a_refusal_is_said_once(settings: OpenVinoSettings) -> None:
    stepper = WorkerStepper(settings, LIMITS)
    try:
        stepper.add(1, request("refused", (REFUSED,), 4))
        (result,) = stepper.step()
        assert (result.key, result.ids, type(result.error)) == (1, [], Unsupported)
        assert not stepper._socket.poll(SILENCE_S)
    finally:
        stepper.close()


def test_an_unexpected_refusal_is_an_incident_that_reveals_nothing(bench: WorkerBench) -> None:
    pid = bench.process.pid
    error: NaiadError = bench.submit("raises", (RAISES,), 4).failure()
    assert isinstance(error, InternalError)
    assert error.incident in error.message
    assert "secret" not in error.message
    assert bench.answers()
    assert bench.process.pid == pid, "the engine stayed usable"


def test_a_worker_without_work_rests_and_a_new_request_wakes_it(bench: WorkerBench) -> None:
    assert bench.answers()
    assert bench.rests()
    assert bench.answers()


def test_a_new_request_joins_while_the_near_end_waits_for_a_step(settings: OpenVinoSettings) -> None:
    """Without `wake`, what arrives during a step would be sent over only after it."""
    stepper = WorkerStepper(settings, LIMITS)
    got: list[Any] = []
    try:
        stepper.add(1, request("hangs", (HANGS,), 4))
        waiting = threading.Thread(target=lambda: got.append(stepper.step()))
        waiting.start()
        assert waiting.is_alive(), "there is nothing to report yet"
        stepper.wake()
        waiting.join(DEADLINE_S)
        assert got == [[]]
    finally:
        stepper.close()


def test_a_near_end_that_falls_behind_is_waited_for_and_still_heard(far_end: FarEnd) -> None:
    """Each end may have its socket full of what the other has not read: neither may wait for ever."""
    late = range(2, 202)

    def submit_late() -> None:
        for key in late:
            far_end.near.send(("add", key, request(f"late {key}", range(10, 1000), 2)))

    far_end.near.send(("add", 1, request("first", (5,), 10**6)))
    poll(stands_still(lambda: far_end.stepper.stats().iterations))
    submitting = threading.Thread(target=submit_late, daemon=True)
    submitting.start()
    submitting.join(20)
    assert not submitting.is_alive(), "the two ends wait for each other"
    far_end.read_until_finished(*late)


def test_a_far_end_without_work_says_nothing(far_end: FarEnd) -> None:
    assert not far_end.near.poll(SILENCE_S)
    far_end.near.send(("add", 1, request("whole", (5,), 3)))
    far_end.read_until_finished(1)
    assert not far_end.near.poll(SILENCE_S)
    far_end.near.send(("add", 2, request("aborted", (5,), 10**6)))
    far_end.near.send(("abort", 2))
    poll(stands_still(lambda: far_end.stepper.stats().iterations))
    while far_end.near.poll(SILENCE_S):
        far_end.near.recv()
    assert far_end.stepper.stats().kv_blocks_used == 0


def stands_still(count: Callable[[], int], for_s: float = 0.2) -> Callable[[], bool]:
    """Return a condition: `count` is above 0 and has not changed for a while."""
    last, since_s = 0, time.monotonic()

    def holds() -> bool:
        nonlocal last, since_s
        now, now_s = count(), time.monotonic()
        if now != last:
            last, since_s = now, now_s
        return now > 0 and now_s - since_s >= for_s

    return holds
