"""Compile, load and run what a plan chose."""
