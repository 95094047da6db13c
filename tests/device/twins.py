"""torch.nn modules beside prnn's, and how to compare them."""

import torch

import prnn


def twins(kind: str, *args, dtype=torch.float64, **kwargs):
    """A torch.nn module and prnn's, with the same weights; both made from the same seed."""
    torch.manual_seed(7)
    theirs = getattr(torch.nn, kind)(*args, dtype=dtype, **kwargs)
    torch.manual_seed(7)
    ours = getattr(prnn.nn, kind)(*args, dtype=dtype, **kwargs)
    return theirs, ours


def states_for(module, batch, **options):
    """Random initial states in the form that `module` takes."""
    directions = 2 if module.bidirectional else 1
    leading = (module.num_layers * directions,) if batch is None else (module.num_layers * directions, batch)
    h = torch.randn(*leading, module.proj_size or module.hidden_size, dtype=torch.float64, **options)
    if module.mode != "LSTM":
        return h
    return h, torch.randn(*leading, module.hidden_size, dtype=torch.float64, **options)


def flat(value):
    """The tensors of a nested result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return [value.data]
    return [tensor for each in value for tensor in flat(each)]


def assert_same(ours, theirs, inputs, tolerance=1e-12):
    """Both modules give the same results and the same gradients of `inputs` and of all parameters.

    The inputs are a tuple of call arguments; float64, so the tolerance is that of a reordered sum.
    """
    leaves = [each for each in flat([arg for arg in inputs if arg is not None]) if each.requires_grad]
    results = [flat(module(*inputs)) for module in (ours, theirs)]
    for mine, wanted in zip(*results):
        torch.testing.assert_close(mine, wanted, rtol=tolerance, atol=tolerance)
    gradients = []
    for module, outputs in zip((ours, theirs), results):
        arriving = [torch.linspace(-1, 1, each.numel(), dtype=each.dtype).view_as(each) for each in outputs]
        inner = [*leaves, *module.parameters()]
        gradients.append(torch.autograd.grad(outputs, inner, arriving, allow_unused=True, materialize_grads=True))
    for mine, wanted in zip(*gradients):
        largest = wanted.abs().max().item() if wanted.numel() else 0.0
        torch.testing.assert_close(mine, wanted, rtol=tolerance, atol=tolerance * max(1.0, largest))
