"""A layer on the GPU beside the float64 reference."""

import zlib

import torch

from prnn import reference
from prnn.ops import cuda, key_of
from prnn.ops.arguments import Layer, plan_of
from prnn.problem import Problem

# Of the largest output, which the cells used here bound by about 1.
TOLERANCE = {torch.float16: 3e-3, torch.bfloat16: 2.5e-2, torch.float32: 5e-6, torch.float64: 1e-12}
TF32_TOLERANCE = 2e-3


def tolerance(dtype):
    """Of float32, by what PyTorch allows its RNNs."""
    return TF32_TOLERANCE if dtype is torch.float32 and cuda.allows_tf32() else TOLERANCE[dtype]


def draw(cell, dtype, hidden, batch, steps, input_size=None, directions=1, bound=1.0, proj_size=0, device="cuda"):
    """x, states, weights of one layer."""
    generator = torch.Generator(device).manual_seed(zlib.crc32(repr((cell.name, hidden, batch, steps)).encode()))

    def uniform(*shape, scale=1.0):
        return ((torch.rand(shape, generator=generator, device=device) * 2 - 1) * scale).to(dtype)

    problem = Problem(cell, input_size or hidden, hidden, proj_size)
    x = uniform(steps, batch, problem.input_size, scale=bound)
    states = [uniform(directions, batch, width) for width in problem.state_sizes]
    shapes = list(problem.weight_shapes.values())
    weights = [uniform(*shape, scale=hidden**-0.5) for _ in range(directions) for shape in shapes]
    return x, states, weights


def config_of(cell, x, states, weights, direction, to_initial):
    """The scalar arguments that fit these tensors."""
    hidden, width = weights[0].shape[0] // len(cell.input_gates), states[0].shape[-1]
    return Layer(key_of(cell), x.shape[-1], hidden, width if width < hidden else 0, True, direction, to_initial)


def run(
    cell, x, states, weights, direction="forward", batch_sizes=None, lengths=None, reset=None, to_initial=False,
    backend="auto",
):  # fmt: skip
    """In a kernel of ours, or an error: nothing falls back here."""
    config = config_of(cell, x, states, weights, direction, to_initial)
    return cuda.run(x, states, weights, batch_sizes, lengths, reset, config, backend)


def expected(cell, x, states, weights, direction="forward", lengths=None, reset=None, to_initial=False, rows=None):
    """The same in float64 by the reference, for the sequences `rows` of the batch (all by default)."""
    config = config_of(cell, x, states, weights, direction, to_initial)
    plan = plan_of(config, x.dtype, False)
    rows = list(range(x.shape[1])) if rows is None else rows
    x = x[:, rows].double().cpu()
    per_direction = plan.split([each.double().cpu() for each in weights])
    outputs, ends = [], []
    for d, reverse in enumerate(plan.reverse):
        y, last = reference.layer(
            cell,
            x,
            per_direction[d],
            [each[d, rows].double().cpu() for each in states],
            lengths=None if lengths is None else lengths[rows].tolist(),
            reset=None if reset is None else reset[:, rows],
            reset_to_initial=to_initial,
            reverse=reverse,
            xp=torch,
        )
        outputs.append(y)
        ends.append(last)
    return torch.cat(outputs, 2), [torch.stack(each) for each in zip(*ends)]


def worst(got, want):
    """Largest error, relative to values beyond 1; NaN must be where it is wanted."""
    got = got.double().cpu()
    assert torch.equal(got.isnan(), want.isnan()), "NaN is not where the reference has it"
    return float(((got - want).nan_to_num().abs() / want.nan_to_num().abs().clamp(min=1)).max()) if got.numel() else 0.0


def compare(cell, x, states, weights, rows=None, backend="auto", **options):
    """Every output within the tolerance of the reference."""
    y, ends = run(cell, x, states, weights, backend=backend, **options)
    want, want_ends = expected(cell, x, states, weights, rows=rows, **options)
    rows = list(range(x.shape[1])) if rows is None else rows
    assert worst(y[:, rows], want) <= tolerance(x.dtype)
    for end, wanted in zip(ends, want_ends):
        assert worst(end[:, rows], wanted) <= tolerance(x.dtype)
