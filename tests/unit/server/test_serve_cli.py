from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from naiad.server import cli
from naiad.server.command import triton_command, triton_environment
from naiad.server.config import CanaryPolicy, ServeConfig
from naiad.server.errors import StartError
from naiad.server.tritonserver import TritonInstallation

INSTALLATION = TritonInstallation(
    Path("/t/bin/tritonserver"), Path("/t/backends"), Path("/t/caches"), (Path("/lib"),), Path("/venv/bin")
)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServeConfig]:
    """Configurations that would have been served; the server ends with status 0."""
    configs: list[ServeConfig] = []

    class Recorder:
        def __init__(self, config: ServeConfig, *, console: object) -> None:
            configs.append(config)

        def run(self) -> int:
            return 0

    monkeypatch.setattr(cli, "Supervisor", Recorder)
    return configs


def invoke(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command(context_settings=cli.SERVE_CONTEXT)(cli.serve)
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


def test_without_options_the_defaults_are_served(served: list[ServeConfig]) -> None:
    assert invoke()[0] == 0
    assert served == [ServeConfig(Path("model_repository"))]


def test_every_option_reaches_the_configuration_and_the_rest_reaches_tritonserver(
    served: list[ServeConfig],
) -> None:
    status, output = invoke(
        "--profile", "synthetic", "--model-repository", "r", "--http-port", "1", "--grpc-port", "2",
        "--metrics-port", "3", "--address", "192.0.2.7", "--model-dir", "m", "--drain-seconds", "7.5",
        "--model", "a", "--model", "b", "--canary-model", "a", "--artifacts", "x", "--verbose",
        "--", "--log-verbose=1", "--rate-limit", "off",
    )  # fmt: skip
    assert status == 0, output
    assert served == [
        ServeConfig(
            Path("r"), Path("x"), "192.0.2.7", 1, 2, 3, "synthetic", ("a", "b"), Path("m"),
            ("--log-verbose=1", "--rate-limit", "off"),
            CanaryPolicy(model="a"), drain_limit_s=7.5, verbose=True,
        )
    ]  # fmt: skip


def test_an_empty_canary_model_switches_the_canary_off(served: list[ServeConfig]) -> None:
    invoke("--canary-model", "")
    assert served[0].canary is None


def test_a_misspelt_option_is_refused_and_not_passed_on(served: list[ServeConfig]) -> None:
    status, output = invoke("--http-prot", "1")
    assert status == 2
    assert "--http-p" in output
    assert served == []


def test_what_keeps_a_server_from_running_is_shown_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __init__(self, config: ServeConfig, *, console: object) -> None:
            return

        def run(self) -> int:
            raise StartError("the server did not start", "see the log")

    monkeypatch.setattr(cli, "Supervisor", Failing)
    status, output = invoke()
    assert status == 1
    assert output == "error: the server did not start\n  -> see the log\n"


def test_the_command_names_every_port_and_folder_and_ends_with_the_users_flags(tmp_path: Path) -> None:
    config = ServeConfig(
        tmp_path, address="::1", http_port=1, grpc_port=2, metrics_port=3, profile="fast", models=("a", "b"),
        triton_flags=("--http-port=9",), drain_limit_s=2.5,
    )  # fmt: skip
    command = triton_command(config, INSTALLATION, "naiad_p_")
    assert command[0] == "/t/bin/tritonserver"
    assert command[-1] == "--http-port=9"
    expected = {
        f"--model-repository={tmp_path}", "--backend-directory=/t/backends", "--cache-directory=/t/caches",
        "--http-address=::1", "--grpc-address=::1", "--metrics-address=::1", "--http-port=1", "--grpc-port=2",
        "--metrics-port=3", "--model-config-name=fast", "--model-control-mode=explicit", "--load-model=a",
        "--load-model=b", "--exit-timeout-secs=3", "--strict-readiness=true", "--exit-on-error=true",
        "--backend-config=python,shm-region-prefix-name=naiad_p_",
    }  # fmt: skip
    assert expected <= set(command)


def test_without_profile_and_models_their_flags_are_left_out(tmp_path: Path) -> None:
    command = triton_command(ServeConfig(tmp_path), replace(INSTALLATION, caches=None), "p")
    assert not any(f.startswith(("--model-config", "--model-control", "--load", "--cache")) for f in command)


def test_the_models_are_told_where_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = ServeConfig(Path("r"), Path("a"), model_dir=Path("m"), http_port=77)
    environment = triton_environment(config, INSTALLATION, {"PATH": "/x"})
    assert environment["NAIAD_MODEL_DIR"] == str(tmp_path / "m")
    assert environment["NAIAD_DRAIN_FILE"] == str(tmp_path / "a" / "run" / "serve-77.drain")
    assert environment["PATH"] == "/venv/bin:/x"
    assert "NAIAD_MODEL_DIR" not in triton_environment(replace(config, model_dir=None), INSTALLATION, {})


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),  # noqa: S104
        ("::", "[::1]"),
        ("::1", "[::1]"),
        ("host", "host"),
    ],
)
def test_a_server_is_reached_from_its_own_machine(address: str, local: str) -> None:
    assert ServeConfig(Path("r"), address=address).local_address == local


def test_servers_of_different_repositories_have_different_regions(tmp_path: Path) -> None:
    one, two = ServeConfig(tmp_path / "a"), ServeConfig(tmp_path / "b")
    assert one.repository_prefix != two.repository_prefix
    assert one.repository_prefix == ServeConfig(tmp_path / "c" / ".." / "a").repository_prefix


def test_a_stray_word_is_refused_and_not_taken_for_a_flag_of_tritonserver(served):
    status, output = invoke("synthetic")
    assert status == 2
    assert "unexpected argument 'synthetic'" in output
    assert served == []
