"""A closed loop: never more streams than asked for, every prompt once, no question left open."""

from __future__ import annotations

import asyncio
import time

import pytest

from naiad_perf.errors import PerfError
from naiad_perf.peers.closed_loop import Arrivals, closed_loop
from naiad_perf.workload.load import Prompt

PROMPTS = tuple(Prompt(f"prompt {number}", (number,), 3) for number in range(7))


class Desk:
    """Answers in two responses; counts who is at it, and closes for the fifth prompt when told."""

    def __init__(self, *, refuses: str = "", waits: bool = False) -> None:
        self.refuses = refuses
        self.waits = waits
        self.open = 0
        self.most = 0
        self.asked: list[str] = []
        self.cancelled = 0

    async def ask(self, prompt: Prompt) -> Arrivals:
        self.asked.append(prompt.text)
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            if prompt.text == self.refuses:
                raise PerfError("closed")
            if self.waits or self.refuses:
                await asyncio.Event().wait()
            came = Arrivals(sent_ns=time.monotonic_ns(), input_tokens=len(prompt.ids))
            for tokens in (1, 0, 2):
                await asyncio.sleep(0)
                came.took(tokens)
            came.ended()
            return came
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.open -= 1


@pytest.mark.parametrize(("streams", "most"), [(1, 1), (3, 3), (7, 7), (32, 7)])
async def test_so_many_streams_ask_every_prompt_once_and_in_order(streams: int, most: int) -> None:
    desk = Desk()
    before_ns = time.monotonic_ns()
    records = await closed_loop(desk.ask, PROMPTS, streams, 60)
    assert desk.asked == [prompt.text for prompt in PROMPTS]
    assert (desk.most, desk.open) == (most, 0)
    assert [record.index for record in records] == list(range(7))
    for record in records:
        assert record.response_tokens == (1, 2), "a response without tokens is none"
        assert record.input_tokens == 1
        assert before_ns <= record.intended_ns <= record.sent_ns <= record.response_ns[0]
        assert record.response_ns[-1] <= (record.ended_ns or 0) <= time.monotonic_ns()


async def test_a_stream_asks_again_only_when_it_has_its_answer() -> None:
    first, second = await closed_loop(Desk().ask, PROMPTS[:2], 1, 60)
    assert second.intended_ns >= (first.ended_ns or 0)


async def test_one_failure_ends_the_others() -> None:
    desk = Desk(refuses="prompt 2")
    with pytest.raises(PerfError, match="closed"):
        await closed_loop(desk.ask, PROMPTS, 3, 60)
    assert (desk.open, desk.cancelled) == (0, 2)


async def test_a_limit_ends_all() -> None:
    desk = Desk(waits=True)
    with pytest.raises(PerfError, match="7 requests were not answered within 0 s"):
        await closed_loop(desk.ask, PROMPTS, 2, 0.01)
    assert (desk.open, desk.cancelled) == (0, 2)
