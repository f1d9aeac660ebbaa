"""Load generators, all behind `naiad_perf.drivers.base.Driver`."""
