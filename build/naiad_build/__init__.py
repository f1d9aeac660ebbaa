"""From a checkpoint and a profile to what Triton serves: model files and rendered configurations."""
