"""The committed model repository: rendered from the profiles, parsed by Triton's own message, thin models."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from naiad.contract import MODELS
from naiad.settings.profiles import DEFAULT_PROFILE
from naiad_build.nvidia_backend import for_nvidias_backend
from naiad_build.profile import known_profiles, load_profile, profile_path
from naiad_build.render import render_all

REPOSITORY = Path(__file__).parents[2] / "model_repository"
PROFILES = [load_profile(profile_path(name)) for name in known_profiles()]
COMMITTED = sorted(REPOSITORY.glob("**/*.pbtxt"))
MODEL_FILES = sorted(REPOSITORY.glob("*/1/model.py"))

by_file = pytest.mark.parametrize(
    "path", COMMITTED, ids=[str(path.relative_to(REPOSITORY)) for path in COMMITTED]
)


def parse(path: Path) -> Any:
    return text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())


def test_the_committed_configurations_are_exactly_those_rendered():
    committed = {str(path.relative_to(REPOSITORY)) for path in COMMITTED}
    assert committed == render_all(PROFILES).keys()


@by_file
def test_a_committed_configuration_equals_a_fresh_rendering(path: Path):
    fresh = render_all(PROFILES)[str(path.relative_to(REPOSITORY))]
    assert path.read_text(encoding="utf-8") == fresh, "run `naiad build render`"


@by_file
def test_a_committed_configuration_is_what_triton_parses(path: Path):
    config = parse(path)
    model = path.relative_to(REPOSITORY).parts[0]
    assert config.name == model
    spec = next(spec for spec in MODELS if spec.name == model)
    if path.stem in {profile.name for profile in PROFILES if profile.backend != "python"}:
        spec = for_nvidias_backend(spec)
    assert [tensor.name for tensor in config.input] == [tensor.name for tensor in spec.inputs]
    assert [tensor.name for tensor in config.output] == [tensor.name for tensor in spec.outputs]
    known = {parameter.name for parameter in spec.parameters}
    if config.backend == "tensorrtllm":
        assert config.parameters.keys() <= known
    else:
        assert config.parameters.keys() == known


@pytest.mark.parametrize("profile", PROFILES, ids=[profile.name for profile in PROFILES])
def test_every_profile_exists_for_every_model(profile):
    for spec in MODELS:
        name = "config.pbtxt" if profile.name == DEFAULT_PROFILE else f"configs/{profile.name}.pbtxt"
        assert (REPOSITORY / spec.name / name).is_file()


def test_the_default_profile_is_one_of_the_profiles():
    assert DEFAULT_PROFILE in {profile.name for profile in PROFILES}


def test_every_model_has_its_version_folder_with_something_in_it():
    """Git keeps no empty folder, and Triton wants version 1."""
    for spec in MODELS:
        assert any((REPOSITORY / spec.name / "1").iterdir())
    assert {path.name for path in REPOSITORY.iterdir() if path.is_dir()} == {spec.name for spec in MODELS}


def test_every_python_model_has_its_file():
    assert {path.parents[1].name for path in MODEL_FILES} == {spec.name for spec in MODELS if not spec.steps}


@pytest.mark.parametrize("path", MODEL_FILES, ids=[path.parents[1].name for path in MODEL_FILES])
def test_a_model_file_only_binds(path: Path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 25
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    roots = {
        name.split(".")[0]
        for node in imports
        for name in (
            [node.module or "."] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        )
    }
    assert roots == {"naiad"}
    assert [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)] == ["TritonPythonModel"]
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Call)]


def test_nothing_lies_beside_a_model_file():
    """Triton puts the model's folder last on the path, so a helper there would lose to any installed name."""
    for path in MODEL_FILES:
        assert {file.name for file in path.parent.iterdir()} <= {"model.py", "__pycache__"}
