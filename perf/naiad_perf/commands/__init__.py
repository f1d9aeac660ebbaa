"""The commands of `naiad bench`."""
