"""A closed loop over asyncio: so many streams, each asking its next question when its last is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from naiad_perf.errors import PerfError
from naiad_perf.records import RequestRecord
from naiad_perf.workload.load import Prompt

__all__ = ["Arrivals", "Ask", "closed_loop"]


@dataclass(slots=True)
class Arrivals:
    """What came back for one request, filled in as it comes.

    Attributes:
        sent_ns: when it was sent, on the monotonic clock.
        response_ns: arrival of each response with tokens.
        response_tokens: tokens in each.
        ended_ns: arrival of the last message.
        input_tokens: length of the prompt as the server counted it.
        text: the answer.
    """

    sent_ns: int = 0
    response_ns: list[int] = field(default_factory=list)
    response_tokens: list[int] = field(default_factory=list)
    ended_ns: int = 0
    input_tokens: int | None = None
    text: str = ""

    def took(self, tokens: int) -> None:
        """Note a response that arrives now; one without tokens is none."""
        if tokens > 0:
            self.response_ns.append(time.monotonic_ns())
            self.response_tokens.append(tokens)

    def ended(self) -> None:
        """Note that the last message arrives now."""
        self.ended_ns = time.monotonic_ns()


Ask = Callable[[Prompt], Awaitable[Arrivals]]


async def closed_loop(
    ask: Ask, prompts: Sequence[Prompt], streams: int, limit_s: float
) -> tuple[RequestRecord, ...]:
    """Ask all prompts, in order, `streams` at once.

    Args:
        ask: sends one prompt and reads its answer to the end.
        prompts: what to ask.
        streams: questions at once.
        limit_s: seconds for everything.

    Returns:
        A record for each prompt, in order.

    Raises:
        PerfError: what `ask` raised, or the limit passed; questions still open are cancelled.
    """
    waiting = iter(enumerate(prompts))
    records: list[RequestRecord] = []

    async def stream() -> None:
        for index, prompt in waiting:  # streams share the iterator: each takes what is next
            intended_ns = time.monotonic_ns()
            came = await ask(prompt)
            records.append(
                RequestRecord(
                    index=index,
                    intended_ns=intended_ns,
                    sent_ns=came.sent_ns,
                    response_ns=tuple(came.response_ns),
                    response_tokens=tuple(came.response_tokens),
                    ended_ns=came.ended_ns,
                    input_tokens=came.input_tokens,
                )
            )

    tasks = [asyncio.create_task(stream()) for _ in range(min(streams, len(prompts)))]
    try:
        _, unfinished = await asyncio.wait(tasks, timeout=limit_s, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()  # raises what it failed with
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if unfinished:
        raise PerfError(f"{len(prompts)} requests were not answered within {limit_s:.0f} s")
    return tuple(sorted(records, key=lambda record: record.index))
