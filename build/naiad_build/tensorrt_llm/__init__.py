"""What TensorRT-LLM 1.2.1 is told, checked before it is used: its build command, its LLM API's settings."""
