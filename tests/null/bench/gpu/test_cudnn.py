"""Calls of cuDNN: their types, the layout of sequences, where every weight goes, and what refusals say."""

import pytest

torch = pytest.importorskip("torch")

from null.bench.gpu.fake_cudnn import FakeCudnn, read  # noqa: E402
from prnn.bench.gpu import cudnn  # noqa: E402
from prnn.bench.gpu.variants import draw  # noqa: E402
from prnn.bench.gpu.workload import GpuWorkload  # noqa: E402

GATES = {"rnn_tanh": 1, "gru": 3, "lstm": 4}


def sizes_of(w):
    """Bytes of every matrix and bias, in an order that is not that of torch.nn."""
    sizes = {}
    itemsize = 4 if w.dtype == "fp32" else 2
    gates = GATES[w.cell]
    for layer in range(w.layers):
        width = w.input if layer == 0 else w.directions * w.output
        for pseudo in range(layer * w.directions, (layer + 1) * w.directions):
            for number in range(2 * gates):
                sizes[pseudo, number, "matrix"] = w.hidden * (width if number < gates else w.output) * itemsize
            if w.projection:
                sizes[pseudo, 8, "matrix"] = w.projection * w.hidden * itemsize
    for pseudo, number, _ in list(sizes):
        if number != 8:
            sizes[pseudo, number, "bias"] = w.hidden * itemsize
    return sizes


def layer_of(workload, algorithm="standard", **options):
    fake = FakeCudnn(sizes_of(workload), **options)
    data = draw(workload, "cpu")
    return fake, data, cudnn.Layer(cudnn.Library(fake), workload, algorithm, data.x, data.weights)


@pytest.mark.parametrize(
    "workload",
    [
        GpuWorkload("lstm", "fp16", "", 6, 3, 4, 5),
        GpuWorkload("gru", "bf16", "", 6, 1, 4, 6, layers=2, directions=2),
        GpuWorkload("rnn_tanh", "fp32", "tf32", 7, 2, 1, 3),
        GpuWorkload("lstm", "fp32", "ieee", 6, 2, 4, 5, layers=2, projection=4),
    ],
    ids=str,
)
def test_every_weight_is_where_cudnn_reads_it(workload):
    fake, data, _ = layer_of(workload)
    gates, each = GATES[workload.cell], 5 if workload.projection else 4
    numbers = 2 * gates + (1 if workload.projection else 0)
    assert len(fake.at) == workload.layers * workload.directions * numbers
    for (pseudo, number), (at_matrix, at_bias) in fake.at.items():
        w_ih, w_hh, b_ih, b_hh, *w_hr = data.weights[each * pseudo : each * (pseudo + 1)]
        if number == 8:
            matrix, bias = w_hr[0], None
        else:
            rows = slice(number % gates * workload.hidden, (number % gates + 1) * workload.hidden)
            matrix, bias = (w_ih, b_ih) if number < gates else (w_hh, b_hh)
            matrix, bias = matrix[rows], bias[rows]
        for address, value in ((at_matrix, matrix), (at_bias, bias)):
            if value is not None:
                size = value.numel() * value.element_size()
                assert read(address, size) == value.contiguous().view(torch.uint8).numpy().tobytes()


def test_descriptors_say_what_the_layer_is():
    workload = GpuWorkload("lstm", "fp16", "", 6, 3, 4, 5, layers=2, directions=2, projection=4)
    fake, data, layer = layer_of(workload)
    # algorithm, mode, double bias, bidirectional, linear input, half, float, tensor op, then sizes; padded input and output disabled
    (described,) = fake.named("cudnnSetRNNDescriptor_v8")
    assert described[1:9] == (0, 2, 2, 1, 0, 2, 0, 1) and described[9:13] == (5, 6, 4, 2) and described[14] == 0
    (x, y) = fake.named("cudnnSetRNNDataDescriptor")
    assert x[1:6] == (2, 1, 4, 3, 5) and y[1:6] == (2, 1, 4, 3, 8) and list(x[6]) == [4, 4, 4]
    h, c = ((list(each[3]), list(each[4])) for each in fake.named("cudnnSetTensorNdDescriptor"))
    assert h == ([4, 3, 4], [12, 4, 1]) and c == ([4, 3, 6], [18, 6, 1])
    outputs = layer.forward()
    assert [tuple(each.shape) for each in outputs] == [(4, 3, 8), (4, 3, 4), (4, 3, 6)]
    (forward,) = fake.named("cudnnRNNForward")
    assert forward[5] == data.x.data_ptr() and forward[7] == outputs[0].data_ptr()
    assert forward[10] == outputs[1].data_ptr() and forward[13] == outputs[2].data_ptr()
    assert forward[14] == sum(sizes_of(workload).values()) and forward[16] == fake.WORK
    layer.close()
    assert fake.alive == set()


@pytest.mark.parametrize(("dtype", "math", "wanted"), [("bf16", "", 1), ("fp32", "tf32", 0), ("fp32", "ieee", 3)])
def test_arithmetic(dtype, math, wanted):
    fake, _, _ = layer_of(GpuWorkload("gru", dtype, math, 6, 3, 4, 5))
    (described,) = fake.named("cudnnSetRNNDescriptor_v8")
    assert described[6:9] == ({"bf16": 9, "fp32": 0}[dtype], 0, wanted)
    assert fake.named("cudnnBuildRNNDynamic") == []


def test_a_dynamic_plan_is_built_for_the_batch():
    fake, _, _ = layer_of(GpuWorkload("gru", "fp16", "", 6, 3, 4, 5), "persist_dynamic")
    assert [each[2] for each in fake.named("cudnnBuildRNNDynamic")] == [3]


@pytest.mark.parametrize("name", ["cudnnSetRNNDescriptor_v8", "cudnnGetRNNTempSpaceSizes"])
def test_a_refusal_says_why_and_leaves_nothing_behind(name):
    workload = GpuWorkload("lstm", "fp16", "", 6, 3, 4, 5)
    fake, data = FakeCudnn(sizes_of(workload), refuse=[name]), draw(workload, "cpu")
    library = cudnn.Library(fake)
    with pytest.raises(
        cudnn.CudnnError, match=f"^{name}: status 3000, CUDNN_STATUS_NOT_SUPPORTED: no kernel for this size$"
    ):
        cudnn.Layer(library, workload, "persist_static", data.x, data.weights)
    assert fake.alive == set()


def test_a_weight_outside_the_space_is_refused():
    workload = GpuWorkload("lstm", "fp16", "", 6, 3, 4, 5)
    sizes = sizes_of(workload)
    del sizes[0, 7, "bias"]
    fake, data = FakeCudnn(sizes), draw(workload, "cpu")
    fake.at = {}
    library = cudnn.Library(fake)
    sizes[0, 7, "matrix"] -= 200  # the last matrices reach beyond the end
    sizes[0, 0, "bias"] = 0
    with pytest.raises(cudnn.CudnnError, match="a weight of .* bytes is said to lie at byte"):
        for number in range(3):
            sizes[0, number, "bias"] = 0
        cudnn.Layer(library, workload, "standard", data.x, data.weights)
