"""The loop over time of the GPU family `launched`: products by cuBLAS, the rest by one kernel (kernels/cuda/cell_step.cuh).

A launch from Python takes longer than a step, so steps are replayed from CUDA graphs. A graph's addresses cannot change: it works on
buffers of its own, R is copied into them once a call, and what else changes from call to call the kernel reads from memory. Graphs of one
device run on one stream, one call after the other, so that their buffers are never used by two at once. cuBLAS's workspace is such a
buffer: PyTorch keeps one for each stream, so graphs are captured on a stream where nothing else runs, and theirs lies in their pool.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from prnn.engine import GpuExecutable
from prnn.kernels import launched
from prnn.kernels.gpu import Arguments
from prnn.kernels.launched import BEGIN, END, KEEP, PROJECT, LaunchedConfig, StepArguments
from prnn.ops.arguments import ARITHMETIC
from prnn.problem import Problem
from prnn.runtime.cuda.kernel import Kernel
from prnn.specs import LayerWeights

GRAPH_STEPS = (32, 8)  # what remains is launched step by step
MAX_LOOPS = 8  # that are kept, each with a copy of R
_lock = threading.Lock()
_HAS_OUT_DTYPE = "dtype_out" in torch.ops.aten.bmm.overloads()  # torch 2.8 and newer


@contextmanager
def loop(
    executable: GpuExecutable, weights: Sequence[LayerWeights], batch: int, x: Tensor, tf32: bool
) -> Iterator[Loop]:
    """The loop over time with these weights, for one call, whose work belongs on the stream that is current inside.

    Args:
        weights: of each direction, contiguous.
        x: of the dtype and on the device of all tensors; the device is the current one.
        tf32: whether products of float32 are rounded to TF32 now; a graph keeps what held when it was captured.
    """
    plan, current = executable.plan, torch.cuda.current_stream(x.device)
    arguments = executable.kernel, plan.problem, plan.config, len(weights), batch, x.dtype, x.device
    if torch.cuda.is_current_stream_capturing():  # by the caller, into whose graph no other can be replayed
        yield Loop(*arguments, may_replay=False).load(weights)
        return
    stream = _shared(x.device).stream
    with _lock:
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                yield _loop(*arguments, tf32).load(weights)
        finally:
            current.wait_stream(stream)


class _Shared(NamedTuple):
    """What all loops of a device share: the stream on which they run, and where and with which memory graphs are captured."""

    stream: torch.cuda.Stream
    capture_stream: torch.cuda.Stream
    pool: Any


@cache
def _shared(device: torch.device) -> _Shared:
    return _Shared(torch.cuda.Stream(device), torch.cuda.Stream(device, priority=-1), torch.cuda.graph_pool_handle())


@lru_cache(maxsize=MAX_LOOPS)
def _loop(
    kernel: Kernel,
    problem: Problem,
    config: LaunchedConfig,
    directions: int,
    batch: int,
    dtype: torch.dtype,
    device: torch.device,
    tf32: bool,
) -> Loop:
    with torch.inference_mode(False):  # or a later call outside of inference mode could not write
        return Loop(kernel, problem, config, directions, batch, dtype, device)


class Loop:
    """Buffers for one batch of one problem, and graphs of steps on them.

    In the shapes D is the number of directions, P the width of the output.
    """

    def __init__(
        self,
        kernel: Kernel,
        problem: Problem,
        config: LaunchedConfig,
        directions: int,
        batch: int,
        dtype: torch.dtype,
        device: torch.device,
        may_replay: bool = True,
    ) -> None:
        self.kernel, self.problem, self.device, self.may_replay = kernel, problem, device, may_replay
        self.config = launched.launch(problem, config, batch, directions)
        program, hidden, width = problem.cell.program, problem.hidden_size, problem.output_size
        wide = ARITHMETIC[dtype]
        self.is_exact = wide is dtype or _HAS_OUT_DTYPE and device.type == "cuda"  # a product's sums come as float32

        def empty(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        self.num_recurrent = program.num_recurrent_slots * hidden
        # Blocks of rows of R in the order of the program's slots: those that multiply h, then those of each product.
        slots = [slot for slot in program.slots if slot.kind != "input"]
        self.order = [problem.cell.recurrent_gates.index(slot.gate) for slot in slots]
        as_multiplied = dtype if self.is_exact else wide
        self.w_hh = empty(directions, len(slots) * hidden, width, dtype=as_multiplied)
        self.w_hr = empty(directions, problem.proj_size, hidden, dtype=as_multiplied)
        self.h = empty(directions, batch, width)
        self.z = empty(directions, batch, self.num_recurrent, dtype=wide)
        self.operands = empty(len(program.products), directions, batch, hidden)
        self.products = empty(len(program.products), directions, batch, hidden, dtype=wide)
        self.raw = empty(directions, batch, hidden)
        self.projected = empty(directions, batch, problem.proj_size, dtype=wide)
        self.states = empty(directions * batch * (width + (len(program.states) - 1) * hidden), dtype=wide)
        self.kept = empty(ctypes.sizeof(StepArguments), dtype=torch.uint8)
        self.arguments = StepArguments(
            h=self.h.data_ptr(),
            z=self.z.data_ptr(),
            operands=self.operands.data_ptr(),
            products=self.products.data_ptr(),
            raw=self.raw.data_ptr(),
            projected=self.projected.data_ptr(),
            states=self.states.data_ptr(),
            num_directions=directions,
        )
        self.graphs: dict[int, Graph] = {}

    def load(self, weights: Sequence[LayerWeights]) -> Loop:
        """Copy the matrices that every step multiplies."""
        for d, each in enumerate(weights):
            if each.w_hh is not None:
                blocks = each.w_hh.split(self.problem.hidden_size)
                torch.cat([blocks[gate] for gate in self.order], out=self.w_hh[d])
            if each.w_hr is not None:
                self.w_hr[d].copy_(each.w_hr)
        return self

    def launch(self, arguments: Arguments, stream: int) -> None:
        """Run a chunk of steps, as engine.GpuExecutable.launch does.

        Raises:
            PrnnError: the driver refuses.
        """
        self.arguments.call = arguments
        self._enqueue(BEGIN, 0, stream)
        done = 0
        for size in GRAPH_STEPS if self.may_replay else ():
            while arguments.num_steps - done >= size:
                if size not in self.graphs:
                    self.step(done, stream)  # cuBLAS sets itself up, which cannot be captured
                    self.graphs[size] = Graph(self, size)
                    done += 1
                else:
                    self.arguments.kept = self.kept.data_ptr()
                    self._enqueue(KEEP, done, stream)
                    self.arguments.kept = None
                    self.graphs[size].replay()
                    done += size
        for step in range(done, arguments.num_steps):
            self.step(step, stream)
        self._enqueue(END, 0, stream)

    def step(self, step: int, stream: int) -> None:
        """Enqueue one step of the chunk."""
        program = self.problem.cell.program
        if self.num_recurrent:
            self._multiply(self.h, self.w_hh[:, : self.num_recurrent], self.z)
        for stage in range(program.num_stages):
            self._enqueue(stage, step, stream)
            for number, ready in enumerate(program.product_stage):
                if ready == stage:
                    first = self.num_recurrent + number * self.problem.hidden_size
                    rows = self.w_hh[:, first : first + self.problem.hidden_size]
                    self._multiply(self.operands[number], rows, self.products[number])
        if self.problem.proj_size:
            self._multiply(self.raw, self.w_hr, self.projected)
            self._enqueue(PROJECT, step, stream)

    def _enqueue(self, stage: int, step: int, stream: int) -> None:
        self.arguments.stage, self.arguments.step = stage, step
        self.kernel.enqueue(self.config, self.arguments, stream)

    def _multiply(self, vectors: Tensor, weight: Tensor, out: Tensor) -> None:
        """out [D, B, rows] = vectors [D, B, columns] weight^T, for each direction."""
        if vectors.dtype is out.dtype:
            torch.bmm(vectors, weight.transpose(1, 2), out=out)
        elif self.is_exact:
            torch.bmm(vectors, weight.transpose(1, 2), out_dtype=out.dtype, out=out)
        else:
            torch.bmm(vectors.to(out.dtype), weight.transpose(1, 2), out=out)


class Graph:
    """`size` steps of a loop, captured. Its launches take the call's arguments from `Loop.kept`."""

    def __init__(self, owner: Loop, size: int) -> None:
        self._graph = torch.cuda.CUDAGraph()
        shared = _shared(owner.device)
        with torch.cuda.stream(shared.capture_stream):
            self._graph.capture_begin(shared.pool, "thread_local")  # other threads may do what a capture forbids
            try:
                owner.arguments.kept = owner.kept.data_ptr()
                for step in range(size):
                    owner.step(step, shared.capture_stream.cuda_stream)
            finally:
                owner.arguments.kept = None
                self._graph.capture_end()

    def replay(self) -> None:
        """Enqueue the steps on the current stream."""
        self._graph.replay()
