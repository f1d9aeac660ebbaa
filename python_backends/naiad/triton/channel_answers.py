"""From the engine's chunks to the token channel of the model that called."""

from __future__ import annotations

from collections.abc import Sequence

from naiad.contract.errors import InvalidArgument, NaiadError
from naiad.contract.generation import TokenChunk
from naiad.engines import Sink
from naiad.serving.engine_requests import EngineRow
from naiad.serving.token_channel import TokenSender, TokenSenders
from naiad.telemetry import Recorder

__all__ = ["ChannelAnswers"]


class ChannelAnswers:
    """All answers of one engine model that go through token channels."""

    def __init__(self) -> None:
        self._senders = TokenSenders()

    def sinks(self, address: str, rows: Sequence[EngineRow], recorder: Recorder) -> list[Sink]:
        """Return a sink for each sequence of a call.

        Raises:
            InvalidArgument: the channel does not exist, or the call has several prompts or no id.
        """
        if any(row.batch_index is not None for row in rows) or not rows[0].request.request_id:
            raise InvalidArgument("a call with a token channel has one prompt and a request id")
        sender = self._senders.to(address)
        return [_ChannelSink(number, row, sender, recorder) for number, row in enumerate(rows)]

    def flush(self) -> None:
        """Send what is queued; to be called after each step of the engine."""
        self._senders.flush()

    def close(self) -> None:
        """End the channels."""
        self._senders.close()


class _ChannelSink:
    def __init__(self, number: int, row: EngineRow, sender: TokenSender, recorder: Recorder) -> None:
        self._number = number
        self._key = row.request.request_id
        self._log_probs = row.request.sampling.log_probs
        self._sender = sender
        self._recorder = recorder

    def is_cancelled(self) -> bool:
        return self._sender.broken

    def emit(self, chunk: TokenChunk) -> None:
        log_probs = chunk.log_probs if self._log_probs else []
        chunk = TokenChunk(chunk.ids, log_probs, chunk.finish_reason, chunk.times, self._number)
        self._sender.put(self._key, chunk)

    def fail(self, error: NaiadError) -> None:
        self._recorder.failed(error.code)
        self._sender.fail(self._key, error)
