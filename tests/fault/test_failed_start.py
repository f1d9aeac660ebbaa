"""B03: a model that cannot load fails the start: the cause is named, nothing is ready, nothing is left."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from naiad.server.errors import StartError
from tests.harness.repository import write_repository
from tests.harness.server import serving


def failed_start(repository: Path, artifacts: Path, model: str) -> str:
    """Start a server of one model that must not become ready; return the reason."""
    with pytest.raises(StartError) as caught, serving(repository, artifacts, models=(model,), canary=None):
        pytest.fail("the server became ready")
    (state,) = (artifacts / "run").glob("serve-*.json")
    assert json.loads(state.read_text())["phase"] == "stopped"
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if any(str(repository) in part for part in command)]
    return str(caught.value)


def misconfigure(repository: Path, model: str, key: str, value: str) -> None:
    """Set a parameter in a model's configuration, as a person with an editor would."""
    path = repository / model / "config.pbtxt"
    config = text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())
    config.parameters[key].string_value = value
    path.write_text(text_format.MessageToString(config))


@pytest.mark.parametrize(
    ("model", "parameter", "value", "cause"),
    [
        ("tensorrt_llm", "max_num_sequences", "0", "parameter max_num_sequences must be at least 1"),
        ("tensorrt_llm", "kv_cache_free_gpu_mem_fraction", "0.9", "kv_cache_free_gpu_mem_fraction"),
        ("tensorrt_llm_bls", "idle_timeout_ms", "soon", "parameter idle_timeout_ms must be a whole number"),
    ],
)
def test_a_wrong_setting(tmp_path: Path, model: str, parameter: str, value: str, cause: str) -> None:
    repository = write_repository(tmp_path / "models")
    misconfigure(repository, model, parameter, value)
    assert cause in failed_start(repository, tmp_path / "artifacts", model)


def test_a_misspelt_setting_is_named_with_the_right_spelling(tmp_path: Path) -> None:
    repository = write_repository(tmp_path / "models")
    misconfigure(repository, "tensorrt_llm", "max_num_sequnces", "8")
    reason = failed_start(repository, tmp_path / "artifacts", "tensorrt_llm")
    assert "max_num_sequnces" in reason
    assert "did you mean max_num_sequences?" in reason


def test_a_process_that_dies_while_it_loads(tmp_path: Path) -> None:
    repository = write_repository(tmp_path / "models")
    version = repository / "postprocessing" / "1"
    version.unlink()
    version.mkdir()
    (version / "model.py").write_text(
        "import os\n\nclass TritonPythonModel:\n    def initialize(self, args):\n        os._exit(3)\n"
        "    def execute(self, requests):\n        return []\n"
    )
    assert "postprocessing" in failed_start(repository, tmp_path / "artifacts", "postprocessing")
