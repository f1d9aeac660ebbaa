"""Streaming gRPC client of a Naiad server."""
