"""What the models do, without Triton: from tensors to requests, from tokens to text."""
