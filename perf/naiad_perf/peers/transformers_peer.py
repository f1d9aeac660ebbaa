"""Plain transformers: `generate` on torch's CPU, in batches of one size."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from naiad_perf.errors import PerfError
from naiad_perf.peers.line_process import LineProcess
from naiad_perf.peers.peer import Peer, Tell
from naiad_perf.peers.weights import SourceWeights
from naiad_perf.processes.family import ProcessFamily
from naiad_perf.records import RequestRecord
from naiad_perf.workload.load import Prompt

__all__ = ["BATCH_SIZES", "DTYPES", "TorchSettings", "TransformersPeer", "batch_records"]

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
DTYPES = ("float32", "bfloat16")
_START_LIMIT_S = 300.0
_BURST_LIMIT_S = 900.0
_PROGRAM = Path(__file__).parent / "programs" / "transformers_generate.py"


@dataclass(frozen=True, slots=True)
class TorchSettings:
    """How it runs.

    Attributes:
        dtype: torch type of weights and arithmetic.
        threads: for computing.
        batches: for a number of requests at once, the batch size they are answered in; that number itself
            where it is not named.
    """

    dtype: str = "float32"
    threads: int = 1
    batches: Mapping[int, int] | None = None

    def batch(self, streams: int) -> int:
        """Return the batch size for so many requests at once."""
        return (self.batches or {}).get(streams, streams)


class TransformersPeer(Peer):
    """`AutoModelForCausalLM.generate`, the weights dequantised from the same GGUF file."""

    name = "transformers"
    label = "transformers"

    def __init__(self, source: SourceWeights, settings: TorchSettings, log: Path, *, python: Path) -> None:
        """Prepare; nothing starts.

        Args:
            source: the weights.
            settings: how to run.
            log: file for what it says.
            python: interpreter of the peers' environment.
        """
        self._source = source
        self._settings = settings
        self._log = log
        self._python = python
        self._tokenizer: Any = Tokenizer.from_file(str(source.directory / "tokenizer.json"))
        self._process: LineProcess | None = None
        self._told: dict[str, Any] = {}

    def start(self, tell: Tell) -> None:
        """See `Peer.start`."""
        settings = {
            "gguf": str(self._source.gguf),
            "dtype": self._settings.dtype,
            "threads": self._settings.threads,
        }
        command = [str(self._python), str(_PROGRAM), json.dumps(settings)]
        offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}
        self._process = LineProcess(command, name=self.label, log=self._log, env=offline)
        self._told = self._process.answer(_START_LIMIT_S)

    def stop(self) -> None:
        """See `Peer.stop`."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    @property
    def processes(self) -> ProcessFamily:
        """See `Peer.processes`."""
        return ProcessFamily(self._process.pid if self._process else -1)

    @property
    def description(self) -> dict[str, str]:
        """See `Peer.description`."""
        told, settings = self._told, self._settings
        return {
            "version": f"{told['version']} ({told['instructions']})",
            "settings": f"generate, {told['attention']} attention, {settings.threads} threads, in process",
            "weights": f"{settings.dtype}, dequantised from {self._source.format}",
        }

    def burst(self, prompts: Sequence[Prompt], streams: int) -> tuple[RequestRecord, ...]:
        """See `Peer.burst`; all requests are there at the start and wait for their batch."""
        records: list[RequestRecord] = []
        for start in range(0, len(prompts), streams):
            wave = prompts[start : start + streams]
            lengths = [len(self._ids(prompt)) for prompt in wave]
            reply = self._generate(wave, self._settings.batch(streams))
            records += batch_records(reply["batches"], lengths, first_index=start)
        return tuple(records)

    def continuation(self, prompt: Prompt) -> str | None:
        """See `Peer.continuation`."""
        (batch,) = self._generate([prompt], 1)["batches"]
        return str(self._tokenizer.decode(batch["ids"][0]))

    def _generate(self, prompts: Sequence[Prompt], batch: int) -> dict[str, Any]:
        if self._process is None:
            raise PerfError(f"{self.label} is not started")
        (tokens,) = {prompt.output_tokens for prompt in prompts}
        question = {"prompts": [self._ids(prompt) for prompt in prompts], "tokens": tokens, "batch": batch}
        return self._process.ask(question, _BURST_LIMIT_S)

    def _ids(self, prompt: Prompt) -> list[int]:
        return list(self._tokenizer.encode(prompt.text).ids)


def batch_records(
    batches: Sequence[Mapping[str, Any]], input_tokens: Sequence[int], *, first_index: int
) -> list[RequestRecord]:
    """Return a record for each request of batches that ran one after the other.

    All requests were intended when the first batch began; each gets a token at each step of its batch.

    Args:
        batches: in order, each with "size", "sent_ns" and "step_ns".
        input_tokens: prompt lengths of all requests.
        first_index: index of the first record.
    """
    intended_ns = batches[0]["sent_ns"]
    records: list[RequestRecord] = []
    for batch in batches:
        times = tuple(batch["step_ns"])
        for _ in range(batch["size"]):
            records.append(
                RequestRecord(
                    index=first_index + len(records),
                    intended_ns=intended_ns,
                    sent_ns=batch["sent_ns"],
                    response_ns=times,
                    response_tokens=(1,) * len(times),
                    ended_ns=times[-1],
                    input_tokens=input_tokens[len(records)],
                )
            )
    return records
