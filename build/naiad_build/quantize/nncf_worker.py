"""Rewrites a model's matrices with NNCF. Run in NNCF's environment, which has nothing of ours.

    python nncf_worker.py JOB.json

The job names `model` (the IR of a 16-bit model), `target` (the IR to write), `settings` (see `formats`) and
`windows` (token ids, a `.npy` of int64 [windows, tokens], or null).
"""

import json
import sys
from typing import Any

import nncf
import numpy as np
import openvino as ov

# Attention, normalisation and rotary positions stay as they are: TensorRT-LLM's INT8 and FP8 recipes quantise
# the inputs of matrix products alone too.
_LEFT_ALONE = (
    "ScaledDotProductAttention", "Broadcast", "Multiply", "Add", "Divide", "Power", "ReduceMean", "Sqrt",
    "Swish",
)  # fmt: skip


def _inputs(ids: Any) -> dict[str, Any]:
    """Return what a model with its KV cache inside takes for one window."""
    return {
        "input_ids": ids[None],
        "attention_mask": np.ones((1, len(ids)), np.int64),
        "position_ids": np.arange(len(ids), dtype=np.int64)[None],
        "beam_idx": np.zeros(1, np.int32),
    }


def _compressed(model: Any, settings: dict[str, Any], dataset: Any, windows: int) -> Any:
    mode = nncf.CompressWeightsMode(settings["weights"])
    if settings["weights"].startswith("int8"):
        return nncf.compress_weights(model, mode=mode)
    return nncf.compress_weights(
        model,
        mode=mode,
        group_size=settings["group_size"],
        ratio=settings["ratio"],
        dataset=dataset,
        awq=settings["awq"] or None,
        scale_estimation=settings["scale_estimation"] or None,
        subset_size=max(windows, 1),
    )


def _quantized(model: Any, settings: dict[str, Any], dataset: Any, windows: int) -> Any:
    alpha = settings["smooth_quant"]
    return nncf.quantize(
        model,
        dataset,
        mode=nncf.QuantizationMode.FP8_E4M3 if settings["activations"] == "fp8" else None,
        preset=nncf.QuantizationPreset.PERFORMANCE,
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=windows,
        ignored_scope=nncf.IgnoredScope(types=list(_LEFT_ALONE)),
        advanced_parameters=nncf.AdvancedQuantizationParameters(
            smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(matmul=-1 if alpha is None else alpha)
        ),
    )


def main() -> None:
    """Do the job."""
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    settings = job["settings"]
    model = ov.Core().read_model(job["model"])
    windows = np.load(job["windows"], allow_pickle=False) if job["windows"] else np.zeros((0, 0), np.int64)
    dataset = nncf.Dataset(list(windows), _inputs) if len(windows) else None
    if settings["weights"] is not None:
        model = _compressed(model, settings, dataset, len(windows))
    if settings["activations"] is not None:
        model = _quantized(model, settings, dataset, len(windows))
    ov.save_model(model, job["target"], compress_to_fp16=False)


if __name__ == "__main__":
    main()
