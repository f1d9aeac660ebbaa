"""Our engine without Triton: the bare OpenVINO loop that serving is measured against."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from naiad_perf.errors import PerfError
from naiad_perf.peers.line_process import LineProcess
from naiad_perf.peers.peer import Peer, Tell
from naiad_perf.processes.family import ProcessFamily
from naiad_perf.records import RequestRecord
from naiad_perf.workload.load import Prompt

__all__ = ["BareLoop"]

_START_LIMIT_S = 120.0
_BURST_LIMIT_S = 600.0


class BareLoop(Peer):
    """`naiad.serving.bare_engine`: the engine of profile `cpu`, stepped until all requests are done."""

    name = "bare"
    label = "bare OpenVINO loop"

    def __init__(self, log: Path) -> None:
        """Prepare; nothing starts. `log` is the file for what it says."""
        self._log = log
        self._process: LineProcess | None = None

    def start(self, tell: Tell) -> None:
        """See `Peer.start`."""
        command = [sys.executable, "-m", "naiad.serving.bare_engine"]
        self._process = LineProcess(command, name=self.label, log=self._log)
        self._process.answer(_START_LIMIT_S)

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
        return {
            "version": f"OpenVINO GenAI {metadata.version('openvino-genai')}",
            "settings": "continuous batching pipeline with the settings of profile cpu, in process",
        }

    def burst(self, prompts: Sequence[Prompt], streams: int) -> tuple[RequestRecord, ...]:
        """See `Peer.burst`; in waves of `streams`, the next when all of one are answered."""
        if self._process is None:
            raise PerfError(f"{self.label} is not started")
        (tokens,) = {prompt.output_tokens for prompt in prompts}
        records: list[RequestRecord] = []
        for start in range(0, len(prompts), streams):
            texts = [prompt.text for prompt in prompts[start : start + streams]]
            reply = self._process.ask({"prompts": texts, "tokens": tokens}, _BURST_LIMIT_S)
            for answer in reply["answers"]:
                if not answer["response_ns"]:
                    raise PerfError(f"{self.label} gave no token for a prompt; it says why in {self._log}")
                records.append(
                    RequestRecord(
                        index=len(records),
                        intended_ns=reply["started_ns"],
                        sent_ns=reply["started_ns"],
                        response_ns=tuple(answer["response_ns"]),
                        response_tokens=tuple(answer["response_tokens"]),
                        ended_ns=answer["response_ns"][-1],
                        input_tokens=answer["input_tokens"],
                    )
                )
        return tuple(records)

    def continuation(self, prompt: Prompt) -> str | None:
        """See `Peer.continuation`; None: it answers in times, and its engine is that of the served one."""
        return None
