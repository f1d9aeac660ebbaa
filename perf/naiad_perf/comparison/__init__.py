"""Two subjects compared."""
