"""Programs of ours that must end with us."""
