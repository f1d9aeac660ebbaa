"""tritonserver's command line and environment for one configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping

from naiad.server.config import ServeConfig
from naiad.server.tritonserver import TritonInstallation
from naiad.settings.model_directory import MODEL_DIRECTORY_VARIABLE
from naiad.triton.drain import DRAIN_FILE_VARIABLE

__all__ = ["triton_command", "triton_environment"]


def triton_command(config: ServeConfig, installation: TritonInstallation, shm_prefix: str) -> list[str]:
    """Return the command; `config.triton_flags` come last, so they win."""
    flags = [
        f"--model-repository={config.model_repository.absolute()}",
        f"--backend-directory={installation.backends}",
        f"--http-address={config.address}",
        f"--http-port={config.http_port}",
        f"--grpc-address={config.address}",
        f"--grpc-port={config.grpc_port}",
        f"--metrics-address={config.address}",
        f"--metrics-port={config.metrics_port}",
        f"--exit-timeout-secs={math.ceil(config.drain_limit_s)}",
        "--exit-on-error=true",
        "--strict-readiness=true",
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        f"--backend-config=python,shm-default-byte-size={config.shm_default_bytes}",
        f"--backend-config=python,stub-timeout-seconds={config.stub_timeout_s}",
    ]
    if installation.caches is not None:
        flags.append(f"--cache-directory={installation.caches}")
    if config.profile is not None:
        flags.append(f"--model-config-name={config.profile}")
    if config.models:
        flags += ["--model-control-mode=explicit", *(f"--load-model={model}" for model in config.models)]
    return [str(installation.binary), *flags, *config.triton_flags]


def triton_environment(
    config: ServeConfig, installation: TritonInstallation, base: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment: `base`, what the installation needs, and where the models find things."""
    environment = installation.environment(base)
    environment[DRAIN_FILE_VARIABLE] = str(config.drain_path.absolute())
    if config.model_dir is not None:
        environment[MODEL_DIRECTORY_VARIABLE] = str(config.model_dir.absolute())
    return environment
