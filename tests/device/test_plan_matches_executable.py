"""What ``prnn plan`` names is what the Executable then runs."""

import json

import pytest

from prnn import engine
from prnn.cells import BUILTIN
from prnn.cli import main
from prnn.problem import Problem


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("batch", "steps"), [(1, 1), (1, 100), (3, 1), (8, 17), (9, 100), (33, 2)])
@pytest.mark.parametrize(
    ("name", "hidden", "proj"), [("lstm", 64, 0), ("lstm", 48, 16), ("gru", 300, 0), ("mgu", 5, 0)]
)
def test_family_and_instruction_set_agree(capsys, name, hidden, proj, batch, steps, dtype, training):
    arguments = [
        "--hidden",
        hidden,
        "--input",
        24,
        "--proj",
        proj,
        "--batch",
        batch,
        "--steps",
        steps,
        "--dtype",
        dtype,
        "--json",
    ]
    assert main(["plan", name, *map(str, arguments), *(["--training"] if training else [])]) == 0
    said = json.loads(capsys.readouterr().out)
    problem = Problem(BUILTIN[name], 24, hidden, proj, dtype=dtype, training=training)
    plan = engine.prepare(problem, batch, steps).plan
    assert (said["family"], said["config"]["isa"], said["config"]["threads"]) == (
        plan.family,
        plan.config.isa,
        plan.config.threads,
    )
    assert said["problem"]["cell_digest"] == plan.problem.cell.digest


@pytest.mark.parametrize("backend", ["cpu_panels", "cpu_inplace", "interpreted"])
def test_a_named_family_is_the_one_that_runs(backend):
    assert engine.prepare(Problem(BUILTIN["gru"], 8, 16), 2, 10, backend).plan.family == backend
