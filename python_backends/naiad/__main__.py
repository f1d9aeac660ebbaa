"""`python -m naiad` is the `naiad` command."""

from naiad.cli import main

main()
