import json
from pathlib import Path
from typing import Any

import pytest

from naiad.contract.errors import InvalidArgument
from naiad.settings.model_directory import ModelDirectory, resolve_model_directory

CONFIG: dict[str, Any] = {"vocab_size": 100, "max_position_embeddings": 64, "eos_token_id": 9}
GENERATION: dict[str, Any] = {"eos_token_id": [2, 0], "pad_token_id": 2, "bos_token_id": 1}


def write(path: Path, config: dict[str, Any], generation: dict[str, Any] | None = None) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps(generation))
    return path


def test_figures_come_from_both_configs_and_generation_wins(tmp_path: Path) -> None:
    path = write(tmp_path / "model", CONFIG, GENERATION)
    assert ModelDirectory.load(path) == ModelDirectory(path, "model", 100, 64, (2, 0), 2, 1)


def test_a_single_eos_and_no_other_ids(tmp_path: Path) -> None:
    model = ModelDirectory.load(write(tmp_path / "model", CONFIG))
    assert (model.eos_ids, model.pad_id, model.bos_id) == ((9,), None, None)


def test_a_null_in_generation_config_does_not_hide_the_models_own(tmp_path: Path) -> None:
    path = write(tmp_path / "model", {**CONFIG, "pad_token_id": 3}, {"pad_token_id": None})
    assert ModelDirectory.load(path).pad_id == 3


def test_a_multi_modal_config_keeps_figures_under_text_config(tmp_path: Path) -> None:
    assert ModelDirectory.load(write(tmp_path / "model", {"text_config": CONFIG})).context_length == 64


def test_a_link_is_resolved_once(tmp_path: Path) -> None:
    write(tmp_path / "model", CONFIG, GENERATION)
    (tmp_path / "default").symlink_to("model")
    assert ModelDirectory.load(tmp_path / "default").path == tmp_path / "model"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"vocab_size": None}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"max_position_embeddings": 0}, "max_position_embeddings"),
        ({"eos_token_id": None}, "no eos_token_id"),
        ({"eos_token_id": []}, "no eos_token_id"),
        ({"eos_token_id": 100}, "eos_token_id 100"),
        ({"eos_token_id": [2, -1]}, "eos_token_id -1"),
        ({"bos_token_id": "<s>"}, "bos_token_id '<s>'"),
        ({"pad_token_id": True}, "pad_token_id True"),
    ],
)
def test_an_impossible_figure_is_refused_by_name(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    path = write(tmp_path / "model", {**CONFIG, **change})
    with pytest.raises(InvalidArgument, match=named):
        ModelDirectory.load(path)


def test_an_empty_folder_says_how_to_fill_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"config\.json.*make setup.*naiad build prepare"):
        ModelDirectory.load(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "\x00"])
def test_damaged_json_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InvalidArgument, match=r"config\.json"):
        ModelDirectory.load(tmp_path)


def test_a_damaged_manifest_is_an_error_not_a_guess(tmp_path: Path) -> None:
    path = write(tmp_path / "model", CONFIG)
    (path / "naiad_model.json").write_text('{"name": "x"}')
    with pytest.raises(InvalidArgument, match=r"naiad_model\.json is damaged"):
        ModelDirectory.load(path)


def test_a_relative_value_counts_from_beside_the_repository(tmp_path: Path) -> None:
    model = tmp_path / ".artifacts" / "models" / "default"
    model.mkdir(parents=True)
    repository = tmp_path / "model_repository" / "tensorrt_llm"
    assert resolve_model_directory(".artifacts/models/default", str(repository), {}) == model


def test_outside_triton_a_relative_value_counts_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve_model_directory("m", None, {}) == tmp_path / "m"


def test_an_absolute_value_is_taken_as_it_is(tmp_path: Path) -> None:
    assert resolve_model_directory(str(tmp_path), "/repo/model", {}) == tmp_path


def test_the_environment_wins(tmp_path: Path) -> None:
    assert (
        resolve_model_directory("/elsewhere", "/repo/model", {"NAIAD_MODEL_DIR": str(tmp_path)}) == tmp_path
    )


def test_an_empty_override_is_none(tmp_path: Path) -> None:
    assert resolve_model_directory(str(tmp_path), None, {"NAIAD_MODEL_DIR": ""}) == tmp_path


@pytest.mark.parametrize("environment", [{}, {"NAIAD_MODEL_DIR": "/absent"}])
def test_a_missing_directory_says_where_and_what_to_do(environment: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match=r"/absent.*make setup.*naiad build prepare"):
        resolve_model_directory("/absent", None, environment)


def test_no_value_at_all_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="NAIAD_MODEL_DIR"):
        resolve_model_directory(" ", None, {})
