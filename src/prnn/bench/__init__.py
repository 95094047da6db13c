"""Suites of measurements: this library beside every peer that is installed, checked before it is timed."""
