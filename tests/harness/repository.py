"""Model repositories of the real models with a test's own settings."""

from __future__ import annotations

from pathlib import Path

from naiad.contract import MODELS
from naiad_build.profile import Profile
from naiad_build.render import render

ROOT = Path(__file__).resolve().parents[2]
MODEL_DIRECTORY = ROOT / ".artifacts" / "models" / "default"


def write_repository(
    folder: Path, *, decoupled: bool = True, max_batch_size: int = 64, **parameters: dict[str, object]
) -> Path:
    """Write a servable repository whose configurations carry `parameters` (model -> key -> value).

    Unless they say otherwise, the engine is the synthetic one and every token a response of its own, as in
    profile `synthetic`.
    """
    engine = {
        "engine": "synthetic",
        "synthetic_prefill_tokens_per_s": 0,
        **parameters.pop("tensorrt_llm", {}),
    }
    text = {"coalesce_when_behind": False, **parameters.pop("tensorrt_llm_bls", {})}
    profile = Profile(
        name="test",
        summary="made by a test",
        decoupled=decoupled,
        max_batch_size=max_batch_size,
        model_directory=str(MODEL_DIRECTORY.resolve()),
        parameters={"tensorrt_llm": engine, "tensorrt_llm_bls": text, **parameters},  # type: ignore[dict-item]  # written as text by it
    )
    for spec in MODELS:
        model = folder / spec.name
        model.mkdir(parents=True)
        (model / "config.pbtxt").write_text(render(spec, profile), encoding="utf-8")
        (model / "1").symlink_to(ROOT / "model_repository" / spec.name / "1")
    return folder
