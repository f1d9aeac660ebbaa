"""The deployment profile that `config.pbtxt` itself is; the others are `configs/<profile>.pbtxt`."""

__all__ = ["DEFAULT_PROFILE"]

DEFAULT_PROFILE = "cpu"
