"""The same model and prompts through other engines: llama.cpp's server, transformers, our own engine bare."""
