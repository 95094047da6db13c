"""Export and compile without a fixed length (44)."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import prnn
from cases.common import KINDS, assert_outputs, flat, states_for, twins

# torch.export and torch.compile warn about their own insides.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_export_with_any_length_and_batch(kind, bidirectional):
    ours, theirs = twins(kind, 4, 5, batch_first=True, bidirectional=bidirectional)
    steps, batch = torch.export.Dim("steps", min=2, max=99), torch.export.Dim("batch", min=1, max=64)
    example = torch.randn(2, 7, 4, dtype=torch.float64)
    program = torch.export.export(ours, (example,), dynamic_shapes=({0: batch, 1: steps},))
    assert [node.target for node in program.graph.nodes if "prnn" in str(node.target)] == [torch.ops.prnn.layer.default]
    assert len(program.graph.nodes) < 40  # nothing was unrolled
    for size, length in ((2, 11), (1, 2), (33, 99)):
        x = torch.randn(size, length, 4, dtype=torch.float64)
        assert_outputs(program.module()(x), theirs(x))


@pytest.mark.parametrize("kind", KINDS)
def test_compile_in_one_graph_for_any_length(kind):
    ours, theirs = twins(kind, 4, 5)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(ours, fullgraph=True, backend=counter)
    for steps in (5, 9, 13, 21):
        x = torch.randn(steps, 3, 4, dtype=torch.float64, requires_grad=True)
        got, wanted = compiled(x), theirs(x)
        assert_outputs(got, wanted)
        mine = torch.autograd.grad(got[0].sum(), [x, *ours.parameters()])
        torch.testing.assert_close(mine, torch.autograd.grad(wanted[0].sum(), [x, *theirs.parameters()]))
    assert counter.frame_count <= 2  # the first length, then any


@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"num_layers": 2, "bidirectional": True}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_shapes_on_meta_without_data(kind, options):
    meta, real = (getattr(prnn.nn, kind)(4, 5, **options, device=device) for device in ("meta", "cpu"))
    for x in (torch.empty(3, 7, 4), torch.empty(7, 4)):
        for mine, wanted in zip(flat(meta(x.to("meta"))), flat(real(x))):
            assert mine.is_meta and mine.shape == wanted.shape and mine.dtype is wanted.dtype


@pytest.mark.parametrize("kind", KINDS)
def test_the_operator_keeps_torch_s_rules(kind):
    layer = getattr(prnn.nn, kind)(3, 4, dtype=torch.float64)
    from prnn.ops import key_of

    weights = [each.detach().requires_grad_() for each in layer.parameters()]
    states = [each.requires_grad_() for each in flat(states_for(layer, 2))]
    x = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    scalars = (key_of(layer.cell), 3, 4, 0, True, "forward", False)
    torch.library.opcheck(torch.ops.prnn.layer.default, (x, states, weights, None, None, None, *scalars, True))
