"""Load generators' programs, fetched and installed."""
