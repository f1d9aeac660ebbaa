"""What a profile asks to be planned or built for a checkpoint."""

from __future__ import annotations

from pathlib import Path

from naiad_build.errors import PlanError
from naiad_build.plan.architecture import read_architecture
from naiad_build.plan.deployment import Deployment, Load, Split, split_over
from naiad_build.plan.machines import GPUS
from naiad_build.plan.precisions import PRECISIONS
from naiad_build.profile import EngineBuild, Profile, known_profiles, load_profile, profile_path

__all__ = ["deployment_of"]


def deployment_of(checkpoint: Path, profile: Profile) -> tuple[Deployment, EngineBuild]:
    """Return what a profile makes of a checkpoint, and what its engine is built for.

    Raises:
        PlanError: the profile names no GPU, or the GPUs cannot be divided as it says.
        SourceError, UnsupportedModelError: see `read_architecture`.
    """
    machine, engine = profile.machine, profile.engine
    if machine is None or engine is None:
        able = [name for name in known_profiles() if load_profile(profile_path(name)).machine]
        raise PlanError(f"profile {profile.name} names no GPU to plan for; these do: {', '.join(able)}")
    architecture = read_architecture(checkpoint)
    if engine.tensor_parallel is None:
        split = split_over(architecture, machine.count)
    elif machine.count % engine.tensor_parallel:
        raise PlanError(
            f"profile {profile.name}: {machine.count} GPUs cannot be cut into parts of "
            f"{engine.tensor_parallel} (tensor_parallel)"
        )
    else:
        split = Split(engine.tensor_parallel, machine.count // engine.tensor_parallel)
    load = Load(
        batch=engine.max_batch_size,
        input_tokens=engine.max_input_len,
        output_tokens=engine.max_seq_len - engine.max_input_len,
        max_num_tokens=engine.max_num_tokens,
    )
    precision = PRECISIONS[engine.precision]
    return Deployment(architecture, GPUS[machine.gpu], split, precision, engine.kv_precision, load), engine
