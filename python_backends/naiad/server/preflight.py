"""Checks before a start: what would make it fail in a minute, said in a second."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from naiad.contract.errors import InvalidArgument
from naiad.server.config import ServeConfig
from naiad.server.errors import PreflightError
from naiad.server.shared_memory import SHARED_MEMORY
from naiad.settings.model_directory import (
    MODEL_DIRECTORY_VARIABLE,
    repository_path,
    resolve_model_directory,
)
from naiad.settings.profiles import DEFAULT_PROFILE

__all__ = ["check", "problems", "require_repository"]

_CONTAINER_BACKENDS = Path("/opt/tritonserver/backends")
_SHM_BYTES = 64 << 20
_LOG_BYTES = 100 << 20
_NVIDIAS_BACKEND = re.compile(r'^backend:\s*"tensorrtllm"', re.MULTILINE)
_MODEL_DIRECTORY = re.compile(
    r'key:\s*"(?:gpt_model_path|tokenizer_dir)"\s*value\s*:?\s*\{\s*string_value:\s*"([^"$]+)"'
)


def check(config: ServeConfig) -> None:
    """Raise the first problem, with the others in its text.

    Raises:
        PreflightError: see `problems`.
    """
    found = list(problems(config))
    if found:
        first, *others = found
        raise PreflightError(first.what, "\n".join([first.remedy, *map(str, others)]))


def problems(
    config: ServeConfig, shared_memory: Path = SHARED_MEMORY, environment: Mapping[str, str] = os.environ
) -> Iterator[PreflightError]:
    """Yield everything that keeps `config` from being served."""
    yield from _repository(config)
    yield from _model_directories(config, environment)
    yield from _ports(config)
    free = shutil.disk_usage(shared_memory).free
    if free < _SHM_BYTES:
        yield PreflightError(
            f"{shared_memory} has {free >> 20} MiB free; Triton's Python models need {_SHM_BYTES >> 20} MiB",
            "give the container more (docker run --shm-size=1g) or remove what fills it",
        )
    yield from _artifacts(config.artifacts)


def require_repository(folder: Path) -> None:
    """Raise PreflightError unless there is a model repository."""
    if not folder.is_dir():
        raise PreflightError(
            f"there is no model repository at {folder}",
            "name one with --model-repository, or start in the folder that holds model_repository/",
        )


def _repository(config: ServeConfig) -> Iterator[PreflightError]:
    try:
        require_repository(config.model_repository)
    except PreflightError as error:
        yield error
        return
    for model in config.models:
        if not (config.model_repository / model).is_dir():
            names = sorted(path.name for path in config.model_repository.iterdir() if path.is_dir())
            yield PreflightError(
                f"{config.model_repository} has no model {model}", f"choose of: {', '.join(names)}"
            )
    yield from _canary(config)
    known = {path.stem for path in config.model_repository.glob("*/configs/*.pbtxt")} | {DEFAULT_PROFILE}
    if config.profile is not None and config.profile not in known:
        # Triton would silently serve config.pbtxt instead.
        yield PreflightError(
            f"no model of {config.model_repository} has a profile {config.profile}",
            f"choose of: {', '.join(sorted(known))}",
        )


def _canary(config: ServeConfig) -> Iterator[PreflightError]:
    if config.canary is None:
        return
    model = config.canary.model
    if not (config.model_repository / model).is_dir() or (config.models and model not in config.models):
        yield PreflightError(
            f"the canary's model {model} would not be loaded",
            "name a loaded text model with --canary-model, or '' to trust Triton's own readiness",
        )


def _model_directories(config: ServeConfig, environment: Mapping[str, str]) -> Iterator[PreflightError]:
    if config.model_dir is not None:
        environment = {**environment, MODEL_DIRECTORY_VARIABLE: str(config.model_dir)}
    seen: set[str] = set()
    for path in _model_configurations(config):
        # Triton's `args["model_repository"]`: the model's own folder.
        folder = path.parent.parent if path.parent.name == "configs" else path.parent
        text = path.read_text(errors="replace")
        if _NVIDIAS_BACKEND.search(text):
            yield from _engine_directory(text, folder.absolute())
            continue
        for value in _MODEL_DIRECTORY.findall(text):
            try:
                resolve_model_directory(value, str(folder.absolute()), environment)
            except InvalidArgument as error:
                if error.message not in seen:
                    seen.add(error.message)
                    what, _, remedy = error.message.partition(": ")
                    yield PreflightError(what, remedy or "prepare the model first (naiad build prepare)")


def _engine_directory(configuration: str, model_folder: Path) -> Iterator[PreflightError]:
    """Look for TensorRT-LLM's engine, and for the backend that runs it in the containers that have one."""
    for value in _MODEL_DIRECTORY.findall(configuration):
        path = repository_path(value, str(model_folder))
        if not path.is_dir():
            yield PreflightError(
                f"no TensorRT-LLM engine at {path}",
                "`naiad build engine CHECKPOINT --profile PROFILE` builds it, on the GPU that will serve it",
            )
    if not (_CONTAINER_BACKENDS / "tensorrtllm").is_dir():
        yield PreflightError(
            "this profile needs NVIDIA's tensorrtllm backend, and there is none here",
            "run in NVIDIA's tritonserver container with TensorRT-LLM, tags 26.04 to 26.07 "
            "(docs/operating.md), or choose a CPU profile: --profile cpu",
        )


def _model_configurations(config: ServeConfig) -> Iterator[Path]:
    if not config.model_repository.is_dir():
        return
    for folder in sorted(config.model_repository.iterdir()):
        if config.models and folder.name not in config.models:
            continue
        chosen = folder / "configs" / f"{config.profile}.pbtxt"
        path = chosen if config.profile and chosen.is_file() else folder / "config.pbtxt"
        if path.is_file():
            yield path


def _ports(config: ServeConfig) -> Iterator[PreflightError]:
    ports = {"http": config.http_port, "grpc": config.grpc_port, "metrics": config.metrics_port}
    if len(set(ports.values())) < len(ports):
        yield PreflightError(f"the three ports are not different: {ports}", "give each its own")
        return
    for name, port in ports.items():
        flag = f"--{name}-port"
        try:
            _try_port(config.address, port)
        except OverflowError:
            yield PreflightError(f"{port} is no TCP port", f"give {flag} a number from 1 to 65535")
        except OSError as error:
            yield _port_problem(error, config.address, port, flag)


def _try_port(address: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((address, port))
        # A bind alone succeeds beside a socket that does not listen yet.
        taken.listen(1)


def _port_problem(error: OSError, address: str, port: int, flag: str) -> PreflightError:
    if error.errno == errno.EADDRINUSE:
        owner = _owner(port)
        return PreflightError(
            f"port {port} of {address} is taken{f' by {owner}' if owner else ''}",
            f"stop that process, or choose another port with {flag}",
        )
    if error.errno == errno.EACCES:
        return PreflightError(f"port {port} needs root", f"choose one above 1023 with {flag}")
    return PreflightError(
        f"cannot listen on {address}:{port} ({error.strerror or error})",
        "choose an address of this machine with --address",
    )


def _owner(port: int) -> str | None:
    """Name the process that listens on `port`, when this user may see it."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr[1] == port:
                return (
                    f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
                    if connection.pid
                    else None
                )
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return None
    return None


def _artifacts(folder: Path) -> Iterator[PreflightError]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield PreflightError(
            f"cannot write to {folder} ({error.strerror or error})", "name another folder with --artifacts"
        )
        return
    if not os.access(folder, os.W_OK):
        yield PreflightError(f"cannot write to {folder}", "name another folder with --artifacts")
    elif free < _LOG_BYTES:
        yield PreflightError(
            f"{folder} has {free >> 20} MiB free; logs may take {_LOG_BYTES >> 20} MiB",
            "free some space, or point --artifacts elsewhere",
        )
