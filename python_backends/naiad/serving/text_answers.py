"""From engine responses to text responses: correct deltas, stop strings held back, one end a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from naiad.contract.generation import FinishReason, RequestTimes, TokenChunk
from naiad.serving.engine_responses import perf_metrics
from naiad.serving.tensor_inputs import Array
from naiad.serving.text_requests import TextRow
from naiad.tokenization import StopMatcher, Tokenizer

__all__ = ["TextAnswer"]


class TextAnswer:
    """The answer of one row: feed it the engine's responses, send what comes out.

    A response is sent when there is text to send, so tokens that add none yet (half a character, the
    possible beginning of a stop string) travel with the next; every count refers to the response it is in.
    """

    def __init__(
        self, row: TextRow, tokenizer: Tokenizer, *, skip_special_tokens: bool, accumulate: bool
    ) -> None:
        self._row = row
        self._sequences = [
            _SequenceText(
                row, tokenizer, index, skip_special_tokens=skip_special_tokens, accumulate=accumulate
            )
            for index in range(row.sequences)
        ]

    @property
    def done(self) -> bool:
        """Whether every sequence has ended."""
        return all(sequence.done for sequence in self._sequences)

    @property
    def stopped_early(self) -> bool:
        """Whether a stop string ended a sequence that the engine still works on."""
        return any(sequence.stopped_early for sequence in self._sequences)

    @property
    def started(self) -> bool:
        """Whether any text left already."""
        return any(sequence.sent for sequence in self._sequences)

    @property
    def output_tokens(self) -> int:
        """Tokens received so far, of all sequences."""
        return sum(sequence.tokens for sequence in self._sequences)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the first sequence ended."""
        return self._sequences[0].reason

    def feed(self, chunk: TokenChunk) -> Sequence[dict[str, Array]]:
        """Take new tokens; return the responses to send, at most one."""
        sequence = self._sequences[chunk.sequence]
        response = None if sequence.done else sequence.feed(chunk)
        return () if response is None else (response,)

    def close(self) -> Iterator[dict[str, Array]]:
        """The engine's stream is over: end the sequences it did not give a reason for."""
        for sequence in self._sequences:
            if not sequence.done:
                yield sequence.end(None)


class _SequenceText:
    def __init__(
        self, row: TextRow, tokenizer: Tokenizer, index: int, *, skip_special_tokens: bool, accumulate: bool
    ) -> None:
        self._row = row
        self._index = index if row.sequences > 1 else None
        self._detokenizer = tokenizer.detokenizer(skip_special_tokens=skip_special_tokens)
        self._stops = StopMatcher(row.stop_words)
        self._accumulate = accumulate and row.streaming
        self._text: list[str] = []  # not sent yet; with accumulate, everything so far
        self._pending_tokens = 0
        self._log_probs: list[float] = []
        self._cumulative = 0.0
        self._times: RequestTimes | None = None
        self.tokens = 0
        self.sent = False
        self.done = False
        self.stopped_early = False
        self.reason: FinishReason | None = None
        if row.echo_prompt:
            self._text.append(self._detokenizer.push(row.prompt_ids))

    def feed(self, chunk: TokenChunk) -> dict[str, Array] | None:
        self.tokens += len(chunk.ids)
        self._pending_tokens += len(chunk.ids)
        if self._row.log_probs:
            self._log_probs += chunk.log_probs
            self._cumulative += sum(chunk.log_probs)
        self._times = chunk.times
        result = self._stops.push(self._detokenizer.push(chunk.ids))
        self._text.append(result.text)
        if result.stopped:
            self.stopped_early = chunk.finish_reason is None
            self._finish(FinishReason.STOP)
            return self._response()
        if chunk.finish_reason is not None:
            return self.end(chunk.finish_reason)
        return self._response() if self._row.streaming and result.text else None

    def end(self, reason: FinishReason | None) -> dict[str, Array]:
        """End the sequence; without a stated reason, by length if it produced all it was asked for."""
        if reason is None:
            reason = FinishReason.LENGTH if self.tokens >= self._row.max_tokens else FinishReason.STOP
        result = self._stops.push(self._detokenizer.flush())
        self._text.append(result.text)
        if result.stopped:
            reason = FinishReason.STOP
        else:
            self._text.append(self._stops.flush())
        self._finish(reason)
        return self._response()

    def _finish(self, reason: FinishReason) -> None:
        self.done = True
        self.reason = reason

    def _response(self) -> dict[str, Array]:
        row, wanted = self._row, self._row.outputs
        text = "".join(self._text)
        self._text = [text] if self._accumulate else []
        self.sent = True
        tensors: dict[str, Array] = {}
        if "text_output" in wanted:
            tensors["text_output"] = np.array([text.encode()], dtype=np.object_)
        if row.log_probs:
            tensors["cum_log_probs"] = np.array([[self._cumulative]], dtype=np.float32)
            tensors["output_log_probs"] = np.array(self._log_probs, dtype=np.float32).reshape(1, 1, -1)
            self._log_probs = []
        if row.batch_index is not None:
            tensors["batch_index"] = np.array([[row.batch_index]], dtype=np.int32)
        if self._index is not None:
            tensors["sequence_index"] = np.array([[self._index]], dtype=np.int32)
        if "num_input_tokens" in wanted:
            tensors["num_input_tokens"] = np.array([[len(row.prompt_ids)]], dtype=np.int32)
        if "num_output_tokens" in wanted:
            tensors["num_output_tokens"] = np.array([[self._pending_tokens]], dtype=np.int32)
        self._pending_tokens = 0
        if self.reason is not None:
            tensors["finish_reason"] = np.array([[self.reason.value.encode()]], dtype=np.object_)
            if self._times is not None:
                tensors.update(perf_metrics(self._times))
        return {name: array for name, array in tensors.items() if name in wanted}
