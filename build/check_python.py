"""Runs before anything is installed: is this Python one that can serve, and can it make an environment?

Kept to syntax that old Pythons read too, so that they get the message and not a traceback.
"""

import shutil
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST, NEWEST = (3, 10), (3, 13)
NEEDED_BYTES = 3 * 1024**3


def problems() -> "Iterator[str]":
    """Yield one sentence on what is wrong and what to do for each thing that is."""
    version = sys.version_info[:2]
    if not OLDEST <= version <= NEWEST:
        yield (
            "Python %d.%d is not served by Triton's Python stubs; use 3.10 to 3.13, for example "
            "`make setup PYTHON=python3.11`" % version
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        yield "this Python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"
    free = shutil.disk_usage(".").free
    if free < NEEDED_BYTES:
        yield "only %.1f GB are free here and about 3 GB are needed; make room or clone onto another disk" % (
            free / 1e9
        )


def main() -> int:
    """Print every problem; exit status 1 when there is one."""
    found = list(problems())
    for problem in found:
        sys.stderr.write("error: %s\n" % problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
