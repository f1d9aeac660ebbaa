"""Servers under measurement, and what they count."""
