from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from naiad.server.config import CanaryPolicy, ServeConfig
from naiad.server.errors import PreflightError
from naiad.server.preflight import check, problems
from tests.harness.server import free_ports

ENGINE = """
parameters { key: "gpt_model_path" value { string_value: "models/default" } }
parameters {
  key: "executor_worker_path"
  value {
    string_value: "/nowhere/worker"
  }
}
"""


@pytest.fixture
def config(tmp_path: Path) -> ServeConfig:
    repository = tmp_path / "model_repository"
    for name in ("llm", "engine"):
        (repository / name / "configs").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text("")
        (repository / name / "configs" / "fast.pbtxt").write_text("")
    http, grpc, metrics = free_ports(3)
    return ServeConfig(
        repository,
        tmp_path / "artifacts",
        http_port=http,
        grpc_port=grpc,
        metrics_port=metrics,
        canary=CanaryPolicy(model="llm"),
    )


def found(config: ServeConfig, **environment: str) -> list[str]:
    return [str(problem) for problem in problems(config, environment=environment)]


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        yield taken.getsockname()[1]


def test_a_sound_configuration_has_no_problem(config: ServeConfig) -> None:
    assert found(config) == []
    check(config)


@pytest.mark.parametrize("name", ["http", "grpc", "metrics"])
def test_a_taken_port_is_named_with_its_flag_and_owner(config: ServeConfig, listener: int, name: str) -> None:
    (problem,) = found(replace(config, **{f"{name}_port": listener}))  # type: ignore[arg-type]
    assert f"port {listener} of 127.0.0.1 is taken" in problem
    assert f"--{name}-port" in problem
    assert f"(pid {os.getpid()})" in problem


def test_equal_ports_are_refused(config: ServeConfig) -> None:
    (problem,) = found(replace(config, grpc_port=config.http_port))
    assert "not different" in problem


def test_a_number_that_is_no_port_is_refused(config: ServeConfig) -> None:
    (problem,) = found(replace(config, grpc_port=70000))
    assert "--grpc-port" in problem


def test_an_address_of_another_machine_is_refused(config: ServeConfig) -> None:
    found_problems = found(replace(config, address="192.0.2.1"))
    assert len(found_problems) == 3
    assert all("--address" in problem for problem in found_problems)


def test_a_missing_repository_is_named(config: ServeConfig, tmp_path: Path) -> None:
    problem = found(replace(config, model_repository=tmp_path / "none"))[0]
    assert f"no model repository at {tmp_path / 'none'}" in problem


def test_a_missing_model_is_answered_with_those_there(config: ServeConfig) -> None:
    (problem,) = found(replace(config, models=("llm", "lm")))
    assert "no model lm" in problem
    assert "engine, llm" in problem


def test_an_unknown_profile_is_answered_with_those_there(config: ServeConfig) -> None:
    assert found(replace(config, profile="fast")) == []
    assert found(replace(config, profile="cpu")) == []  # which is config.pbtxt
    (problem,) = found(replace(config, profile="fsat"))
    assert "profile fsat" in problem
    assert "choose of: cpu, fast" in problem


def test_a_canary_model_that_would_not_be_loaded_is_refused(config: ServeConfig) -> None:
    (problem,) = found(replace(config, canary=CanaryPolicy(model="gone")))
    assert "--canary-model" in problem
    (problem,) = found(replace(config, models=("engine",)))
    assert "canary's model llm" in problem
    assert found(replace(config, models=("engine",), canary=None)) == []


def test_a_model_directory_that_is_missing_is_named_with_what_makes_it(config: ServeConfig) -> None:
    (config.model_repository / "engine" / "config.pbtxt").write_text(ENGINE)
    (problem,) = found(config)
    assert str(config.model_repository.parent / "models" / "default") in problem
    assert "make setup" in problem
    assert "worker" not in problem


def test_an_engine_of_nvidias_backend_is_looked_for_with_its_backend(
    config: ServeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config.model_repository / "engine" / "config.pbtxt").write_text(f'{ENGINE}\nbackend: "tensorrtllm"\n')
    no_engine, no_backend = found(config)
    assert "no TensorRT-LLM engine at" in no_engine
    assert "naiad build engine" in no_engine
    assert "needs NVIDIA's tensorrtllm backend" in no_backend
    assert "26.04 to 26.07" in no_backend

    (config.model_repository.parent / "models" / "default").mkdir(parents=True)
    (tmp_path / "backends" / "tensorrtllm").mkdir(parents=True)
    monkeypatch.setattr("naiad.server.preflight._CONTAINER_BACKENDS", tmp_path / "backends")
    assert found(config) == []


def test_the_profiles_own_configuration_decides_about_model_directories(config: ServeConfig) -> None:
    (config.model_repository / "engine" / "configs" / "fast.pbtxt").write_text(ENGINE)
    assert found(config) == []
    assert len(found(replace(config, profile="fast"))) == 1


def test_a_model_directory_on_the_command_line_or_in_the_environment_wins(
    config: ServeConfig, tmp_path: Path
) -> None:
    (config.model_repository / "engine" / "config.pbtxt").write_text(ENGINE)
    assert found(replace(config, model_dir=tmp_path)) == []
    assert found(config, NAIAD_MODEL_DIR=str(tmp_path)) == []
    (problem,) = found(replace(config, model_dir=tmp_path / "gone"))
    assert str(tmp_path / "gone") in problem


def test_too_little_shared_memory_is_named_with_the_containers_flag(
    config: ServeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 63 << 20

    monkeypatch.setattr("naiad.server.preflight.shutil.disk_usage", lambda path: Usage)
    assert any("--shm-size" in problem for problem in found(config))


def test_artifacts_that_cannot_be_written_are_named(config: ServeConfig, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (problem,) = found(replace(config, artifacts=tmp_path / "file"))
    assert f"cannot write to {tmp_path / 'file'}" in problem


def test_a_check_raises_everything_that_is_wrong_at_once(config: ServeConfig) -> None:
    with pytest.raises(PreflightError, match=r"(?s)no model lm.*--grpc-port"):
        check(replace(config, models=("llm", "lm"), grpc_port=70000))
