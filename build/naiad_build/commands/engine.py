"""`naiad build engine`: TensorRT-LLM's engine, or the LLM API's settings, for a profile."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer
import yaml

from naiad_build.commands.terminal import explained, output
from naiad_build.errors import ConversionError, PlanError, SourceError
from naiad_build.plan.deployment import Deployment
from naiad_build.plan.planner import make_plan
from naiad_build.profile import EngineBuild, Profile, load_profile, profile_path
from naiad_build.profile_plan import deployment_of
from naiad_build.tensorrt_llm.engine_build import VERSION, build_script, engine_commands, llm_args

__all__ = ["engine"]


def engine(
    checkpoint: Annotated[
        Path, typer.Argument(help="Folder of a Hugging Face checkpoint.", metavar="CHECKPOINT")
    ],
    profile: Annotated[str, typer.Option(help="Profile that says what to build.", metavar="PROFILE")],
    out: Annotated[
        Path | None, typer.Option(help="Where it goes; by default `.artifacts/engines/PROFILE`.")
    ] = None,
    script_only: Annotated[
        bool, typer.Option("--script-only", help="Write the script, and run nothing.")
    ] = False,
) -> None:
    """Build a profile's TensorRT-LLM engine, or write down how.

    A plan comes first: what does not fit is refused. Then a script with every command and its checks is
    written to OUT; where `trtllm-build` is, in NVIDIA's container with the GPU, it is run. A profile of the
    LLM API gets its settings as `llm_api.yaml` instead: that path builds nothing. Every flag and field is
    checked against TensorRT-LLM 1.2.1's own list.

    - `naiad build engine ./Llama-3.1-8B-Instruct --profile h200_fp8`

    - `naiad build engine ./Llama-3.1-8B-Instruct --profile llmapi_h200_fp8`

    The engine of the CPU profiles is made by `naiad build prepare`.
    """
    with explained():
        stated = load_profile(profile_path(profile))
        folder = out if out is not None else Path(".artifacts/engines") / profile
        if not checkpoint.is_dir():
            raise SourceError(f"there is no folder {checkpoint}: name a Hugging Face checkpoint's")
        deployment, build = _planned(checkpoint, stated)
        folder.mkdir(parents=True, exist_ok=True)
        if stated.backend == "tensorrtllm":
            _engine(checkpoint, folder, deployment, build, script_only=script_only)
        else:
            path = folder / "llm_api.yaml"
            path.write_text(yaml.safe_dump(llm_args(deployment, build), sort_keys=False), encoding="utf-8")
            output.print(f"{path} is what `tensorrt_llm.LLM` is given", highlight=False, soft_wrap=True)


def _planned(checkpoint: Path, profile: Profile) -> tuple[Deployment, EngineBuild]:
    deployment, build = deployment_of(checkpoint, profile)
    plan = make_plan(deployment)
    if not plan.fits:
        nearest = "; these would: " + ", ".join(each.change for each in plan.alternatives)
        raise PlanError(
            f"profile {profile.name} does not fit this model{nearest if plan.alternatives else ''}\n"
            f"`naiad build plan {checkpoint} --profile {profile.name}` says more"
        )
    return deployment, build


def _engine(
    checkpoint: Path, folder: Path, deployment: Deployment, build: EngineBuild, *, script_only: bool
) -> None:
    script = folder / "build_engine.sh"
    commands = engine_commands(deployment, build)
    script.write_text(build_script(commands, deployment, str(checkpoint.resolve())), encoding="utf-8")
    script.chmod(0o755)
    if script_only or shutil.which("trtllm-build") is None:
        where = "" if script_only else "; there is no trtllm-build here"
        output.print(f"{script} is written and not run{where}", highlight=False, soft_wrap=True)
        return
    output.print(f"running {script}", highlight=False, soft_wrap=True)
    status = subprocess.run([str(script.resolve())], check=False).returncode
    if status:
        raise ConversionError(
            f"{script} failed with status {status} (TensorRT-LLM {VERSION}); its output is above"
        )
    output.print(f"the engine is in {folder / 'engine'}", highlight=False, soft_wrap=True)
