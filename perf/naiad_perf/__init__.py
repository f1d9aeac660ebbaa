"""Measuring a Naiad server the way performance engineers do."""
