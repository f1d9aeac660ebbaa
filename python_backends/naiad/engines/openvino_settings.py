"""Settings of the CPU engine, apart from it: whoever only starts its process need not load OpenVINO."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from naiad.contract.errors import Unsupported
from naiad.contract.generation import GenerationRequest

__all__ = ["OpenVinoSettings"]

MAX_BAD_WORDS = 64


@dataclass(frozen=True, slots=True)
class OpenVinoSettings:
    """How the pipeline is built.

    Attributes:
        directory: prepared model directory with the OpenVINO model and tokenizer.
        kv_tokens: tokens the KV cache holds.
        kv_precision: f32, f16 or u8.
        dynamic_quantization: quantise activations to INT8 as they come. It is faster, but what is computed
            together shifts log probabilities by up to 0.4, so a close call between tokens may fall the other
            way. Without it, and with f32, they agree within 1e-4 (docs/measurements.md), and a request's
            tokens do not depend on its batch neighbours.
        max_sequences: most sequences in one step.
        max_num_tokens: most tokens in one step; a larger prompt is prefilled in chunks.
        prefix_caching: reuse KV blocks of equal prefixes.
        chunked_prefill: split prompts over steps so that running streams go on.
    """

    directory: Path
    kv_tokens: int
    kv_precision: str = "f32"
    dynamic_quantization: bool = True
    max_sequences: int = 256
    max_num_tokens: int = 256
    prefix_caching: bool = True
    chunked_prefill: bool = True

    def check(self, request: GenerationRequest) -> None:
        """Every sampling value that `SamplingParams` can state is supported.

        Raises:
            Unsupported: too many bad words for one grammar.
        """
        if len(request.sampling.bad_sequences) > MAX_BAD_WORDS:
            raise Unsupported(
                f"bad_words_list holds more than {MAX_BAD_WORDS} words, the most this engine takes"
            )
