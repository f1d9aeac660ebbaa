"""How llama.cpp's server is set: one value of each knob, as parameters of the wheel or of its program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["AS_FETCHED", "LLAMA_KNOBS", "LlamaSettings", "knobs_for"]

AS_FETCHED = "as fetched"
"""The weights file as it is."""


@dataclass(frozen=True, slots=True)
class LlamaSettings:
    """One way to run it.

    Attributes:
        weights: ggml type that the matrices are stored in; `AS_FETCHED` for the file as it is.
        flash_attention: on, off, or auto for llama.cpp's own choice.
        cache: type of the KV cache.
        unified: whether all slots share one KV buffer.
        ubatch: most tokens computed at once.
        waiting: what its threads do between two operations: active (they spin) or passive (they sleep), for
            builds with OpenMP.
        threads: for computing.
    """

    weights: str = "q8_0"
    flash_attention: str = "auto"
    cache: str = "f16"
    unified: bool = False
    ubatch: int = 512
    waiting: str = "active"
    threads: int = 1

    def __str__(self) -> str:
        return (
            f"weights {self.weights}, flash attention {self.flash_attention}, KV cache {self.cache}"
            f"{', one buffer' if self.unified else ''}, n_ubatch {self.ubatch}, {self.threads} threads, "
            f"{self.waiting} waiting"
        )

    @property
    def environment(self) -> dict[str, str]:
        """Environment of its process."""
        return {"OMP_WAIT_POLICY": "passive"} if self.waiting == "passive" else {}

    def parameters(self, model: Path, slots: int, context: int) -> dict[str, Any]:
        """Return `CommonParams` of the wheel.

        Args:
            model: weights file.
            slots: requests at once.
            context: tokens of a prompt and its answer.
        """
        return {
            "model.path": str(model),
            "n_parallel": slots,
            "n_ctx": slots * context,
            "cont_batching": True,
            "cpuparams.n_threads": self.threads,
            "cpuparams_batch.n_threads": self.threads,
            "flash_attn_type": {"on": "enabled", "off": "disabled"}.get(self.flash_attention, "auto"),
            "cache_type_k": self.cache,
            "cache_type_v": self.cache,
            "kv_unified": self.unified,
            "n_ubatch": self.ubatch,
        }

    def arguments(self, model: Path, slots: int, context: int, port: int) -> list[str]:
        """Return arguments of the program `llama-server`; see `parameters`."""
        return [
            "--model", str(model), "--host", "127.0.0.1", "--port", str(port),
            "--parallel", str(slots), "--ctx-size", str(slots * context), "--cont-batching",
            "--threads", str(self.threads), "--threads-batch", str(self.threads),
            "--flash-attn", self.flash_attention,
            "--cache-type-k", self.cache, "--cache-type-v", self.cache,
            "--kv-unified" if self.unified else "--no-kv-unified",
            "--ubatch-size", str(self.ubatch),
        ]  # fmt: skip


LLAMA_KNOBS: Mapping[str, tuple[Any, ...]] = {
    "weights": ("q8_0", AS_FETCHED, "bf16"),
    "waiting": ("active", "passive"),
    "flash_attention": ("auto", "on", "off"),
    "cache": ("f16", "q8_0", "f32"),
    "unified": (False, True),
    "ubatch": (512, 128, 2048),
}
"""What is tried of each, one knob after the other. Formats with fewer bits than the weights have would be
faster, but another model: 4 bits without an offset (q4_0) cannot hold those of q4_1.
"""


def knobs_for(form: str) -> dict[str, tuple[Any, ...]]:
    """Return `LLAMA_KNOBS` for weights that come in a format, which need not be tried twice."""
    weights = LLAMA_KNOBS["weights"]
    return {
        **LLAMA_KNOBS,
        "weights": tuple(value for value in weights if value != AS_FETCHED or form not in weights),
    }
