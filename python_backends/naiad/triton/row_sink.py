"""From the engine's chunks of one sequence to responses of the request it belongs to."""

from __future__ import annotations

from naiad.contract.errors import NaiadError
from naiad.contract.generation import TokenChunk
from naiad.serving.engine_requests import EngineRow
from naiad.triton.answers import Answer
from naiad.triton.responses import as_naiad_error

__all__ = ["RowSink"]


class RowSink:
    """Turns one sequence's chunks into responses: one a chunk, or a single one at the end."""

    def __init__(self, number: int, row: EngineRow, answer: Answer) -> None:
        self._number = number  # of the sequence in the request, which may ask for several a row
        self._row = row
        self._answer = answer
        self._gathered = TokenChunk([])
        self._log_prob = 0.0

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._answer.ended or self._answer.is_cancelled()

    def emit(self, chunk: TokenChunk) -> None:
        """Send a chunk, or gather it until the last when the caller wants one response."""
        try:
            self._emit(chunk)
        except Exception as error:  # noqa: BLE001 - the engine's thread serves the other requests too
            self._answer.abandon(as_naiad_error(error, "writing a response"))

    def _emit(self, chunk: TokenChunk) -> None:
        self._log_prob += sum(chunk.log_probs)
        last = chunk.finish_reason is not None
        if not self._row.streaming:
            self._gathered.ids += chunk.ids
            self._gathered.log_probs += chunk.log_probs
            if not last:
                return
            chunk = TokenChunk(self._gathered.ids, self._gathered.log_probs, chunk.finish_reason, chunk.times)
        self._answer.send(self._number, self._row.encode(chunk, self._log_prob), last=last)

    def fail(self, error: NaiadError) -> None:
        """Send the error that ended the sequence."""
        error.partial = error.partial and self._row.streaming  # what was only gathered was not delivered
        self._answer.fail(self._number, error)
