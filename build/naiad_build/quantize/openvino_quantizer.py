"""From a model with 16-bit matrices to one in another format, with NNCF in an environment of its own."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from naiad.settings.model_directory import Quantization
from naiad_build.disk import ensure_free_memory
from naiad_build.openvino_model import IR_FILES, run_tool
from naiad_build.progress import Progress
from naiad_build.quantize.calibration import PACKAGED, read_texts, windows_of
from naiad_build.quantize.formats import OpenVinoFormat
from naiad_build.tool_environment import ToolEnvironment

__all__ = ["NNCF_VERSION", "Calibration", "nncf_environment", "planned", "quantize_openvino"]

NNCF_VERSION = "3.4.0"
_HERE = Path(__file__).parent
_PYTHONS = (10, 14)
_NEEDED_BYTES = 700_000_000
_LIMIT_S = 24 * 3600
# Peak memory over the size of the 16-bit weights, measured on SmolLM2-135M (2026-12-05): 2.1 without
# calibration, 5.8 for AWQ with 16 windows of 256, 8.1 for SmoothQuant.
_MEMORY_PLAIN, _MEMORY_CALIBRATED = 3, 9


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a format is calibrated on.

    Attributes:
        texts: file of texts; see `read_texts`.
        windows: most windows of it.
        tokens: length of each.
    """

    texts: Path = PACKAGED
    windows: int = 32
    tokens: int = 256


def nncf_environment(artifacts: Path) -> ToolEnvironment:
    """Return NNCF's environment below `artifacts`, installed or not."""
    return ToolEnvironment("nncf", _HERE / "environments" / "nncf.lock", artifacts, _PYTHONS, _NEEDED_BYTES)


def planned(chosen: OpenVinoFormat, calibration: Calibration) -> Quantization:
    """Return what the manifest will say of a format, as far as it is known before it is made.

    Raises:
        SourceError: the calibration text is needed and cannot be read.
    """
    if not chosen.needs_calibration:
        return Quantization(format=chosen.name, settings=chosen.settings())
    return Quantization(
        format=chosen.name,
        settings={**chosen.settings(), "windows": calibration.windows, "window_tokens": calibration.tokens},
        calibration_sha256=read_texts(calibration.texts).sha256,
    )


def quantize_openvino(
    base: Path,
    target: Path,
    chosen: OpenVinoFormat,
    calibration: Calibration,
    artifacts: Path,
    progress: Progress,
) -> Quantization:
    """Write the IR of `base` in another format into `target`.

    Args:
        base: prepared model with 16-bit matrices.
        target: folder that the IR is written to.
        chosen: the format.
        calibration: used where the format needs it.
        artifacts: where NNCF's environment is, or is installed.
        progress: called as the steps begin.

    Raises:
        SourceError: the calibration text is unusable.
        NotEnoughSpaceError: too little memory is free.
        InstallError: NNCF cannot be installed.
        ConversionError: NNCF failed.
    """
    weights = (base / IR_FILES[1]).stat().st_size
    factor = _MEMORY_CALIBRATED if chosen.needs_calibration else _MEMORY_PLAIN
    ensure_free_memory(factor * weights, f"Writing {base.name} as {chosen.name}")
    plan, windows = planned(chosen, calibration), None
    if chosen.needs_calibration:
        texts = read_texts(calibration.texts)
        windows = windows_of(texts, base / "tokenizer.json", calibration.windows, calibration.tokens)
    environment = nncf_environment(artifacts)
    environment.install(progress)
    with tempfile.TemporaryDirectory(prefix="naiad-quantize-") as scratch:
        if windows is not None:
            np.save(Path(scratch) / "windows.npy", windows)
        job = {
            "model": str(base / IR_FILES[0]),
            "target": str(target / IR_FILES[0]),
            "settings": chosen.settings(),
            "windows": None if windows is None else str(Path(scratch) / "windows.npy"),
        }
        file = Path(scratch) / "job.json"
        file.write_text(json.dumps(job), encoding="utf-8")
        progress(f"Quantising: {chosen.title}")
        run_tool([str(environment.python), str(_HERE / "nncf_worker.py"), str(file)], _LIMIT_S, "NNCF")
    return plan.model_copy(update={"calibration_tokens": 0 if windows is None else windows.size})
