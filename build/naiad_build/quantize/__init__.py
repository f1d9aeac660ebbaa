"""Weights in fewer bits: the formats, what they are calibrated on, and the tools that make them."""
