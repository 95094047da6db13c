"""This library: prnn.Stream over numpy for a step, prnn.nn for a sequence."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

import prnn.nn
from prnn import engine
from prnn.bench.variants import Array, Variant, modules
from prnn.bench.workload import Data, Workload
from prnn.stream import Stream


def prepare(workload: Workload, data: Data) -> Variant:
    """See Variant."""
    plan = engine.plan(workload.problem, workload.batch, workload.steps, held=workload.streaming)
    return replace(_prepare(workload, data), family=plan.family, plan=str(plan))


def _prepare(workload: Workload, data: Data) -> Variant:
    if not workload.streaming:
        return modules.sequence(modules.make(prnn.nn, workload, data), workload, data)
    stream = Stream(workload.problem.cell, [data.weights], slots=workload.batch)

    def outputs() -> dict[str, Array]:
        stream.reset()
        return {"y": np.stack([stream.step(x) for x in data.x])}

    return Variant(outputs, partial(stream.step, data.x[0].copy()))
