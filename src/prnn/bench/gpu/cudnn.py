"""cuDNN's recurrent layers called directly, each with one of its algorithms: what torch.nn does not let its user choose.

A small binding in ctypes to the library that PyTorch brings. Names, orders and numbers are those of cudnn_adv.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_size_t, c_uint32, c_ulonglong, c_void_p
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from prnn.bench.gpu.workload import GpuWorkload

ALGORITHMS = {"standard": 0, "persist_static": 1, "persist_dynamic": 2, "persist_static_small_h": 3}
_DYNAMIC = ALGORITHMS["persist_dynamic"]
_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}  # in torch.nn's order, which is cuDNN's
_PROJECTION = 8  # number of the projection among the matrices of an LSTM
_FLOAT = 0
_TYPES = {torch.float32: _FLOAT, torch.float16: 2, torch.bfloat16: 9}
_DEFAULT_MATH, _TENSOR_OP_MATH, _FMA_MATH = 0, 1, 3
_MATHS = {"": _TENSOR_OP_MATH, "tf32": _DEFAULT_MATH, "ieee": _FMA_MATH}
_DOUBLE_BIAS, _LINEAR_INPUT, _SEQ_MAJOR_PACKED, _PADDED_IO_DISABLED, _INFERENCE = 2, 0, 1, 0, 0

_INTS, _HANDLE, _SIZE = POINTER(c_int), c_void_p, POINTER(c_size_t)
# Every function returns cudnnStatus_t.
_SIGNATURES: dict[str, list[Any]] = {
    "cudnnCreate": [POINTER(_HANDLE)],
    "cudnnSetStream": [_HANDLE, c_void_p],
    "cudnnCreateRNNDescriptor": [POINTER(_HANDLE)],
    "cudnnDestroyRNNDescriptor": [_HANDLE],
    "cudnnCreateDropoutDescriptor": [POINTER(_HANDLE)],
    "cudnnDestroyDropoutDescriptor": [_HANDLE],
    "cudnnCreateRNNDataDescriptor": [POINTER(_HANDLE)],
    "cudnnDestroyRNNDataDescriptor": [_HANDLE],
    "cudnnCreateTensorDescriptor": [POINTER(_HANDLE)],
    "cudnnDestroyTensorDescriptor": [_HANDLE],
    "cudnnSetDropoutDescriptor": [_HANDLE, _HANDLE, c_float, c_void_p, c_size_t, c_ulonglong],
    # desc, algo, cellMode, biasMode, dirMode, inputMode, dataType, mathPrec, mathType, input, hidden, proj, layers, dropout, flags
    "cudnnSetRNNDescriptor_v8": [_HANDLE, *[c_int] * 8, *[c_int32] * 4, _HANDLE, c_uint32],
    "cudnnSetRNNDataDescriptor": [_HANDLE, c_int, c_int, c_int, c_int, c_int, _INTS, c_void_p],
    "cudnnSetTensorNdDescriptor": [_HANDLE, c_int, c_int, _INTS, _INTS],
    "cudnnBuildRNNDynamic": [_HANDLE, _HANDLE, c_int],
    "cudnnGetRNNWeightSpaceSize": [_HANDLE, _HANDLE, _SIZE],
    "cudnnGetRNNTempSpaceSizes": [_HANDLE, _HANDLE, c_int, _HANDLE, _SIZE, _SIZE],
    # handle, desc, pseudoLayer, size, space, linLayerID, mDesc, mAddr, bDesc, bAddr
    "cudnnGetRNNWeightParams": [
        _HANDLE, _HANDLE, c_int32, c_size_t, c_void_p, c_int32, _HANDLE, POINTER(c_void_p), _HANDLE, POINTER(c_void_p),
    ],
    # handle, desc, mode, lengths, x desc and data, y desc and data, h desc, hx, hy, c desc, cx, cy, then size and address of
    # weights, work and reserve space
    "cudnnRNNForward": [
        _HANDLE, _HANDLE, c_int, c_void_p, _HANDLE, c_void_p, _HANDLE, c_void_p, _HANDLE, c_void_p, c_void_p, _HANDLE, c_void_p,
        c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p,
    ],
}  # fmt: skip


class CudnnError(Exception):
    """cuDNN refused a call; the message says which, and why in cuDNN's words."""


class Library:
    """cuDNN with one handle, on one device.

    Args:
        functions: the loaded library, or what has the same functions.
    """

    def __init__(self, functions: Any) -> None:
        self._functions = functions
        for name, arguments in _SIGNATURES.items():
            function = getattr(functions, name)
            function.argtypes, function.restype = arguments, c_int
        functions.cudnnGetErrorString.argtypes, functions.cudnnGetErrorString.restype = [c_int], c_char_p
        functions.cudnnGetLastErrorString.argtypes = [c_char_p, c_size_t]
        functions.cudnnGetLastErrorString.restype = None
        self.handle = self.create("cudnnCreate")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            CudnnError: its status is not 0.
        """
        status = getattr(self._functions, name)(*arguments)
        if status:
            more = ctypes.create_string_buffer(1024)
            self._functions.cudnnGetLastErrorString(more, len(more))
            reason = (self._functions.cudnnGetErrorString(status) or b"").decode()
            detail = more.value.decode(errors="replace").strip()
            raise CudnnError(f"{name}: status {status}, {reason}" + (f": {detail}" if detail else ""))

    def create(self, name: str) -> c_void_p:
        """The handle that a ``cudnnCreate...`` writes."""
        handle = c_void_p()
        self.call(name, ctypes.byref(handle))
        return handle


@lru_cache(maxsize=1)
def load() -> Library:
    """The cuDNN that PyTorch has loaded.

    Raises:
        OSError, AttributeError: there is none, or it is older than 9.
    """
    torch.backends.cudnn.version()  # has torch load its library, which the system's loader then knows by this name
    return Library(ctypes.CDLL("libcudnn.so.9"))


class Layer:
    """A workload with one algorithm, its weights copied to where cuDNN reads them.

    Args:
        x: [T, B, I].
        weights: of torch.nn, in the order of its parameters.

    Raises:
        CudnnError: the algorithm does not do this workload.
    """

    def __init__(
        self, library: Library, workload: GpuWorkload, algorithm: str, x: Tensor, weights: Sequence[Tensor]
    ) -> None:
        self._library, self._workload, self._x = library, workload, x
        self._destroy: list[tuple[str, c_void_p]] = []
        try:
            self._prepare(ALGORITHMS[algorithm], weights)
        except CudnnError:
            self.close()
            raise

    def _create(self, kind: str) -> c_void_p:
        descriptor = self._library.create(f"cudnnCreate{kind}Descriptor")
        self._destroy.append((f"cudnnDestroy{kind}Descriptor", descriptor))
        return descriptor

    def _prepare(self, algorithm: int, weights: Sequence[Tensor]) -> None:
        w, x, call = self._workload, self._x, self._library.call
        handle, data_type = self._library.handle, _TYPES[x.dtype]
        self._rnn, dropout = self._create("RNN"), self._create("Dropout")
        call("cudnnSetDropoutDescriptor", dropout, handle, 0.0, None, 0, 0)
        call(
            "cudnnSetRNNDescriptor_v8", self._rnn, algorithm, _MODES[w.cell], _DOUBLE_BIAS, w.directions - 1, _LINEAR_INPUT,
            data_type, _FLOAT, _MATHS[w.math], w.input, w.hidden, w.output, w.layers, dropout, _PADDED_IO_DISABLED,
        )  # fmt: skip
        if algorithm == _DYNAMIC:
            call("cudnnBuildRNNDynamic", handle, self._rnn, w.batch)
        self._x_descriptor = self._sequence(data_type, w.input)
        self._y_descriptor = self._sequence(data_type, w.directions * w.output)
        count = w.layers * w.directions
        self._h_descriptor = self._matrix_stack(data_type, count, w.batch, w.output)
        self._c_descriptor = self._matrix_stack(data_type, count, w.batch, w.hidden)
        self._lengths = torch.full((w.batch,), w.steps, dtype=torch.int32, device=x.device)
        self._y = x.new_empty(w.steps, w.batch, w.directions * w.output)
        self._h = [x.new_zeros(count, w.batch, w.output) for _ in range(2)]
        self._c = [x.new_zeros(count, w.batch, w.hidden) for _ in range(2)]
        size, work, reserve = c_size_t(), c_size_t(), c_size_t()
        call("cudnnGetRNNWeightSpaceSize", handle, self._rnn, ctypes.byref(size))
        call(
            "cudnnGetRNNTempSpaceSizes", handle, self._rnn, _INFERENCE, self._x_descriptor, ctypes.byref(work),
            ctypes.byref(reserve),
        )  # fmt: skip
        self._weights, self._work, self._reserve = (
            torch.zeros(max(each.value, 16), dtype=torch.uint8, device=x.device) for each in (size, work, reserve)
        )
        self._copy(weights)

    def _sequence(self, data_type: int, width: int) -> c_void_p:
        w, descriptor = self._workload, self._create("RNNData")
        lengths = (c_int * w.batch)(*[w.steps] * w.batch)
        padding = c_float(0.0)  # no sequence is shorter
        self._library.call(
            "cudnnSetRNNDataDescriptor", descriptor, data_type, _SEQ_MAJOR_PACKED, w.steps, w.batch, width, lengths,
            ctypes.byref(padding),
        )  # fmt: skip
        return descriptor

    def _matrix_stack(self, data_type: int, *shape: int) -> c_void_p:
        descriptor = self._create("Tensor")
        strides = (c_int * 3)(shape[1] * shape[2], shape[2], 1)
        self._library.call("cudnnSetTensorNdDescriptor", descriptor, data_type, 3, (c_int * 3)(*shape), strides)
        return descriptor

    def _copy(self, weights: Sequence[Tensor]) -> None:
        """Write every matrix and bias of torch.nn to the address that cuDNN has for it."""
        w, gates = self._workload, _GATES[self._workload.cell]
        matrix, bias = self._create("Tensor"), self._create("Tensor")
        at_matrix, at_bias = c_void_p(), c_void_p()
        each = 5 if w.projection else 4
        for pseudo_layer in range(w.layers * w.directions):
            w_ih, w_hh, b_ih, b_hh, *projection = weights[each * pseudo_layer : each * (pseudo_layer + 1)]
            blocks: list[tuple[int, Tensor, Tensor | None]] = []
            for gate in range(gates):
                rows = slice(gate * w.hidden, (gate + 1) * w.hidden)
                blocks += [(gate, w_ih[rows], b_ih[rows]), (gates + gate, w_hh[rows], b_hh[rows])]
            blocks += [(_PROJECTION, w_hr, None) for w_hr in projection]
            for number, weight, offset in blocks:
                self._library.call(
                    "cudnnGetRNNWeightParams", self._library.handle, self._rnn, pseudo_layer, len(self._weights),
                    self._weights.data_ptr(), number, matrix, ctypes.byref(at_matrix), bias, ctypes.byref(at_bias),
                )  # fmt: skip
                self._write(at_matrix.value, weight)
                if offset is not None:
                    self._write(at_bias.value, offset)

    def _write(self, address: int | None, value: Tensor) -> None:
        start, count = (address or 0) - self._weights.data_ptr(), value.numel() * value.element_size()
        if not 0 <= start <= len(self._weights) - count:
            raise CudnnError(
                f"a weight of {count} bytes is said to lie at byte {start} of a space of {len(self._weights)}"
            )
        self._weights[start : start + count].view(value.dtype).view(value.shape).copy_(value)

    def forward(self) -> tuple[Tensor, ...]:
        """Enqueue the whole sequence on the current stream; y, h and for an LSTM c, overwritten by the next call.

        Raises:
            CudnnError: cuDNN refuses.
        """
        call, handle = self._library.call, self._library.handle
        call("cudnnSetStream", handle, torch.cuda.current_stream().cuda_stream if self._x.is_cuda else None)
        call(
            "cudnnRNNForward", handle, self._rnn, _INFERENCE, self._lengths.data_ptr(), self._x_descriptor, self._x.data_ptr(),
            self._y_descriptor, self._y.data_ptr(), self._h_descriptor, self._h[0].data_ptr(), self._h[1].data_ptr(),
            self._c_descriptor, self._c[0].data_ptr(), self._c[1].data_ptr(), len(self._weights), self._weights.data_ptr(),
            len(self._work), self._work.data_ptr(), len(self._reserve), self._reserve.data_ptr(),
        )  # fmt: skip
        return (self._y, self._h[1], self._c[1]) if self._workload.cell == "lstm" else (self._y, self._h[1])

    def close(self) -> None:
        """Destroy the descriptors."""
        while self._destroy:
            self._library.call(*self._destroy.pop())
