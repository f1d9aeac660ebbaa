"""Weights in fewer bits: which formats there are, what they are calibrated on, and the tools that make them."""
