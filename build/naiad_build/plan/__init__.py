"""Whether a model fits a machine, and what it can cost there at best: arithmetic, before any build."""
