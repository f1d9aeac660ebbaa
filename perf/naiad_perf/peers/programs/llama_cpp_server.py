"""llama.cpp's server, as the xllamacpp wheel carries it, in a process of its own.

`python llama_cpp_server.py SETTINGS` takes a JSON object of llama.cpp's parameters (`CommonParams`; a dot
goes into a part, for example `cpuparams.n_threads`), loads the model, writes one line of JSON, `{"address":
..., "instructions": ..., "version": ...}`, and serves until stdin ends. It imports nothing of Naiad's: it
runs in the peers' environment.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from typing import Any

import xllamacpp


def main() -> None:
    """Serve until stdin ends."""
    parameters = xllamacpp.CommonParams()
    for name, value in json.loads(sys.argv[1]).items():
        *parts, last = name.split(".")
        holder = parameters
        for part in parts:
            holder = getattr(holder, part)
        setattr(holder, last, _enumerated(last, value))
    server = xllamacpp.Server(parameters)
    told = {
        "address": server.listening_address,
        "instructions": xllamacpp.get_system_info(),
        "version": metadata.version("xllamacpp"),
    }
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # its own way out waits for connections


def _enumerated(name: str, value: Any) -> Any:
    """Return the member of llama.cpp's enumeration where a parameter has one."""
    if name in ("cache_type_k", "cache_type_v"):
        return getattr(xllamacpp.ggml_type, f"GGML_TYPE_{value.upper()}")
    if name == "flash_attn_type":
        return getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{value.upper()}")
    return value


if __name__ == "__main__":
    main()
