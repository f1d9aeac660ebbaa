"""Who takes part, each at its best: peers' settings are tried out on this machine before the contest."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from naiad_perf.errors import PerfError, ScenarioError
from naiad_perf.peers.bare_loop import BareLoop
from naiad_perf.peers.burst_figures import decode_rate, tokens_per_s
from naiad_perf.peers.environment import peers_environment
from naiad_perf.peers.llama_cpp import LlamaCppProgram, LlamaCppServer, LlamaCppWheel
from naiad_perf.peers.llama_settings import LlamaSettings, knobs_for
from naiad_perf.peers.peer import Peer, Tell
from naiad_perf.peers.served import Served
from naiad_perf.peers.transformers_peer import BATCH_SIZES, DTYPES, TorchSettings, TransformersPeer
from naiad_perf.peers.tuning import Trial, tuned
from naiad_perf.peers.weights import SourceWeights
from naiad_perf.workload.making import distinct_prompts

__all__ = ["LABELS", "NAMES", "Contestants"]

LABELS: Mapping[str, str] = {
    kind.name: kind.label for kind in (Served, BareLoop, LlamaCppWheel, LlamaCppProgram, TransformersPeer)
}
NAMES = tuple(LABELS)
_TRIAL_TOKENS = 32
_TRIAL_BURSTS = 2
_IN_PEERS_ENVIRONMENT = (LlamaCppWheel.name, TransformersPeer.name)


@dataclass(frozen=True, slots=True)
class Contestants:
    """Makes contestants.

    Attributes:
        source: weights for the peers.
        artifacts: folder of tools, models and servers.
        folder: for logs.
        profile: of our server.
        streams: loads of the contest.
        input_tokens: of every prompt.
        output_tokens: of every answer.
        llama_server: program to take part besides the wheel; None for none.
        tune: whether the peers' settings are tried out; else the usual ones are taken.
        tell: for the person at the terminal.
        note: told of every trial, with the contestant's name.
    """

    source: SourceWeights
    artifacts: Path
    folder: Path
    profile: str
    streams: Sequence[int]
    input_tokens: int
    output_tokens: int
    llama_server: Path | None
    tune: bool
    tell: Tell
    note: Callable[[str, Trial], None]

    def make(self, names: Sequence[str]) -> tuple[list[Peer], dict[str, tuple[int, ...]]]:
        """Return contestants that are not started, and further loads that some of them are to have.

        Raises:
            PerfError: one cannot be installed, or runs in no way that was tried.
            ScenarioError: a program is needed that was not named.
        """
        if any(name in _IN_PEERS_ENVIRONMENT for name in names):
            peers_environment(self.artifacts).install(self.tell)
        peers: list[Peer] = []
        extra: dict[str, tuple[int, ...]] = {}
        for name in NAMES:
            if name not in names:
                continue
            if name == Served.name:
                peers.append(Served(self.profile, self.artifacts, self._log(name)))
            elif name == BareLoop.name:
                peers.append(BareLoop(self._log(name)))
            elif name == TransformersPeer.name:
                settings, best = self._torch_settings()
                peers.append(self._transformers(settings))
                if best not in self.streams:
                    extra[name] = (best,)
            else:
                peers.append(self._llama(name, self._llama_settings(name)))
        return peers, extra

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    @property
    def _python(self) -> Path:
        return peers_environment(self.artifacts).python

    def _llama(self, name: str, settings: LlamaSettings) -> LlamaCppServer:
        common = (
            self.source,
            settings,
            max(self.streams),
            # A few tokens of room: what fills its context ends early.
            self.input_tokens + self.output_tokens + 16,
            self.artifacts / "peers",
            self._log(name),
        )
        if name == LlamaCppWheel.name:
            return LlamaCppWheel(*common, python=self._python)
        if self.llama_server is None:
            raise ScenarioError(f"{LABELS[name]} needs --llama-server, the path of the program")
        return LlamaCppProgram(*common, program=self.llama_server)

    def _llama_settings(self, name: str) -> LlamaSettings:
        usual = LlamaSettings(threads=os.cpu_count() or 1)
        if not self.tune:
            return usual
        streams = max(self.streams)

        def speed(settings: LlamaSettings) -> float:
            self.tell(f"trying {LABELS[name]}: {settings}")
            with self._llama(name, settings) as peer:
                peer.start(self.tell)
                return self._best_of_bursts(peer, streams)

        return tuned(usual, knobs_for(self.source.format), speed, lambda trial: self.note(name, trial))

    def _best_of_bursts(self, peer: Peer, streams: int) -> float:
        """Return tokens/s of the fastest of a few short bursts: what disturbs only makes slower."""
        tokens = min(_TRIAL_TOKENS, self.output_tokens)
        peer.burst(distinct_prompts(streams, self.input_tokens, 2, "trial, warm-up"), streams)
        speeds = []
        for number in range(_TRIAL_BURSTS):
            prompts = distinct_prompts(streams, self.input_tokens, tokens, f"trial {number}")
            speeds.append(tokens_per_s(peer.burst(prompts, streams)))
        return max(speeds)

    def _transformers(self, settings: TorchSettings) -> TransformersPeer:
        return TransformersPeer(self.source, settings, self._log(TransformersPeer.name), python=self._python)

    def _torch_settings(self) -> tuple[TorchSettings, int]:
        """Return settings for all loads, and the batch size with the most tokens/s of all."""
        usual = TorchSettings(threads=os.cpu_count() or 1)
        if not self.tune:
            return usual, max(self.streams)
        rates = {dtype: self._rates_by_batch(replace(usual, dtype=dtype)) for dtype in DTYPES}
        dtype = max(rates, key=lambda name: max(rates[name].values(), default=0.0))
        rate = rates[dtype]
        if not rate:
            raise PerfError(f"{TransformersPeer.label} ran in no way; it says why in its log")
        batches = {
            streams: max((size for size in rate if size <= streams), key=lambda size: rate[size])
            for streams in self.streams
        }
        return replace(usual, dtype=dtype, batches=batches), max(rate, key=lambda size: rate[size])

    def _rates_by_batch(self, settings: TorchSettings) -> dict[int, float]:
        """Return batch size -> tokens/s; without sizes that did not run."""
        rates: dict[int, float] = {}
        tokens = min(_TRIAL_TOKENS, self.output_tokens)
        with self._transformers(settings) as peer:
            try:
                peer.start(self.tell)
                for size in BATCH_SIZES:
                    words = f"{settings.dtype}, batch {size}"
                    self.tell(f"trying {TransformersPeer.label}: {words}")
                    found = []
                    for number in range(-1, _TRIAL_BURSTS):
                        prompts = distinct_prompts(
                            size, self.input_tokens, tokens if number >= 0 else 2, f"trial {number} of {size}"
                        )
                        records = peer.burst(prompts, size)
                        if number >= 0:
                            found.append(decode_rate(records, self.output_tokens))
                    rates[size] = max(found)
                    self.note(TransformersPeer.name, Trial(words, rates[size]))
            except PerfError as error:
                self.tell(f"{TransformersPeer.label}: {settings.dtype} does not run: {error}")
                self.note(TransformersPeer.name, Trial(settings.dtype, None))
        return rates
