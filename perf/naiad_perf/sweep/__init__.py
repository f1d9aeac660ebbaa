"""Running all of a scenario, and going on where it ended."""
