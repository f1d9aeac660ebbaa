"""Finds a real tritonserver, starts it and keeps it honest: supervised, drained, swept, restarted."""
