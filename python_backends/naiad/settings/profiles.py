"""Deployment profiles as far as a running system needs them: the default one, and what its machine costs.

`config.pbtxt` itself is the default profile; the others are `configs/<profile>.pbtxt`.
"""

from __future__ import annotations

import math
from pathlib import Path

import yaml

from naiad.contract.errors import InvalidArgument

__all__ = ["DEFAULT_PROFILE", "hourly_price_usd"]

DEFAULT_PROFILE = "cpu"
_FOLDER = Path(__file__).resolve().parents[3] / "build" / "profiles"


def hourly_price_usd(profile: str, folder: Path = _FOLDER) -> float | None:
    """Return what an hour of a profile's machine costs, in US dollars.

    Args:
        profile: its name.
        folder: the profiles' YAML files.

    Returns:
        None when the profile states no price, or has no file here (its configurations were written by hand).

    Raises:
        InvalidArgument: the file is not readable, or the price in it is not a positive number.
    """
    path = folder / f"{profile}.yaml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidArgument(f"profile {path.name} is not readable YAML: {error}") from None
    price = content.get("hourly_price_usd") if isinstance(content, dict) else None
    if price is None:
        return None
    if isinstance(price, bool) or not isinstance(price, int | float) or not 0 < price < math.inf:
        raise InvalidArgument(
            f"profile {path.name}: hourly_price_usd must be a positive number, not {price!r}"
        )
    return float(price)
