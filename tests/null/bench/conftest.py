"""Rows that nobody measured."""

import pytest


@pytest.fixture
def invent():
    """A row of 100 us a step, floor 50, with some keys replaced; `ratio` follows from the peers."""

    def row(**changes):
        invented = {
            "suite": "cpu",
            "device": "a CPU",
            "versions": {"python": "3.11"},
            "commit": "0" * 12,
            "date": "2026-01-01",
            "cell": "lstm",
            "dtype": "fp32",
            "math": "ieee",
            "pass": "forward",
            "hidden": 256,
            "input": 256,
            "layers": 1,
            "directions": 1,
            "projection": 0,
            "heads": 1,
            "batch": 1,
            "steps": 1,
            "threads": 1,
            "family": "cpu_panels",
            "plan": "cpu_panels (x86-64-v3, 1 thread)",
            "ours_us": 100.0,
            "ours_spread": [99.0, 120.0],
            "floor_us": 50.0,
            "floor_by": "bytes",
            "peers": {"torch.nn": 1000.0, "onnxruntime": 140.0},
            "max_error": 1e-7,
            "checked": True,
        } | changes
        peers, ours = invented["peers"], invented["ours_us"]
        best = min(peers, key=peers.get, default=None)
        invented["best_peer"] = best
        invented["ratio"] = None if best is None or ours is None else peers[best] / ours
        return invented | changes

    return row
