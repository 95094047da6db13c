"""A layer's call as the emulator's kernels see it: arrays, arguments, and the reference's answer."""

from dataclasses import dataclass, field

import numpy as np

from emulator import from_bits, to_bits
from prnn import reference
from prnn.kernels import gpu
from prnn.kernels.gpu import Features
from prnn.packing import restart_rows
from prnn.problem import Problem
from prnn.specs import LayerWeights

TOLERANCE = {
    ("float16", "ieee"): 2e-3,
    ("bfloat16", "ieee"): 1.5e-2,
    ("float32", "tf32"): 1e-3,
    ("float32", "ieee"): 2e-6,
}


@dataclass
class LayerCase:
    """One layer's data, drawn from a seed, for the steps and the batch of the call.

    Attributes:
        config: of the family, without `problem`.
        packed: rows as in a PackedSequence (needs `lengths` in decreasing order).
        chunk: steps of a launch; all by default.
        bound: of the uniformly drawn input.
        workspace_bytes: through which CTAs exchange h; whoever launches clears it.
    """

    problem: Problem
    config: object
    steps: int
    batch: int
    lengths: tuple = ()
    with_restart: bool = False
    to_initial: bool = False
    reverse: bool = False
    both: bool = False
    packed: bool = False
    chunk: int = 0
    bound: float = 1.0
    nan_row: int = -1
    y_offset: int = 0  # numbers before y in its row
    workspace_bytes: int = 0
    arrays: list = field(default_factory=list)

    @property
    def features(self):
        return Features(bool(self.lengths) or self.with_restart)

    @property
    def directions(self):
        return (False, True) if self.both else (self.reverse,)

    def __str__(self):
        p = self.problem
        parts = [
            p.cell.name,
            p.dtype if p.math == "ieee" else p.math,
            f"H{p.hidden_size}",
            f"T{self.steps}",
            f"B{self.batch}",
            *map(str, vars(self.config).values()),
        ]
        names = ("with_restart", "to_initial", "reverse", "both", "packed")
        parts += [name for name in names if getattr(self, name)]
        parts += [f"chunk{self.chunk}"] * bool(self.chunk) + [f"lengths{len(self.lengths)}"] * bool(self.lengths)
        return "-".join(parts)

    def draw(self):
        """Weights, states and input of every direction, exact in the problem's dtype."""
        rng = np.random.default_rng(7)
        p = self.problem

        def uniform(*shape, scale=1.0):
            return from_bits(to_bits(rng.uniform(-scale, scale, shape), p.dtype), p.dtype)

        self.x = uniform(self.steps, self.batch, p.input_size, scale=self.bound)
        if self.nan_row >= 0:
            self.x[1, self.nan_row] = np.nan
        self.initial = [[uniform(self.batch, p.hidden_size) for _ in p.cell.states] for _ in self.directions]
        self.weights = []
        for _ in self.directions:
            named = {name: uniform(*shape, scale=p.hidden_size**-0.5) for name, shape in p.weight_shapes.items()}
            matrices = [named.get(name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")]
            self.weights.append(LayerWeights(*matrices, tuple(named[name] for name in p.cell.vectors)))
        self.reset = rng.random((self.steps, self.batch)) < 0.3 if self.with_restart else None

    def expected(self):
        """(y, final states) of each direction by the reference."""
        return [
            reference.layer(
                self.problem.cell, self.x, weights, initial, lengths=self.lengths or None, reset=self.reset,
                reset_to_initial=self.to_initial, reverse=reverse,
            )
            for weights, initial, reverse in zip(self.weights, self.initial, self.directions)
        ]  # fmt: skip

    # ---- the launches

    def _address(self, array):
        array = np.ascontiguousarray(array)
        self.arrays.append(array)  # alive as long as the case
        return array.ctypes.data

    def _bits(self, array):
        return None if array is None else self._address(to_bits(array, self.problem.dtype))

    def arguments(self):
        """The launches' arguments, in order; fills self.y, self.ends and self.stopped for `results`."""
        p, steps, batch, width = self.problem, self.steps, self.batch, self.problem.hidden_size
        self.arrays.clear()
        lengths = np.array(self.lengths or [steps] * batch)
        valid = lengths > np.arange(steps)[:, None]
        self.index = np.flatnonzero(valid) if self.packed else np.arange(steps * batch)
        offsets = np.concatenate([[0], valid.sum(1).cumsum()])[:-1] if self.packed else np.arange(steps) * batch
        self.pitch = self.y_offset + width * len(self.directions)
        self.y = np.full((len(self.index), self.pitch), to_bits(np.nan, p.dtype))
        self.stopped = np.zeros(1, np.uint32)
        restarts = []
        for reverse in self.directions:
            restart = None if self.reset is None else restart_rows(self.reset, lengths, reverse)
            restarts.append(None if restart is None else self._address(restart[self.index]))
        chunk = self.chunk or max(steps, 1)
        starts = range(0, steps, chunk)
        self.ends = [
            [np.full((batch, width), to_bits(np.nan, p.dtype)) for _ in p.cell.states] for _ in self.directions
        ]
        carried = [[np.full((batch, width), np.nan, np.float32) for _ in p.cell.states] for _ in self.directions]
        self.arrays += [each for states in carried for each in states]
        launches = []
        self.workspace = np.full(self.workspace_bytes, 0xFF, np.uint8)
        for number, start in enumerate(starts):
            args = gpu.Arguments(y_pitch=self.pitch, num_steps=min(chunk, steps - start), batch=batch)
            args.copies_per_direction = -(-batch // (8 * self.config.batch_tiles))
            args.exchange = self.workspace.ctypes.data
            args.zero_padding = int(not self.packed)
            args.lengths = self._address(lengths.astype(np.int32)) if self.lengths else None
            args.row_of_step = self._address(offsets.astype(np.int64)) if self.packed else None
            args.patience = gpu.Patience(1, self.stopped.ctypes.data, 5)
            for d, reverse in enumerate(self.directions):
                first = steps - 1 - start if reverse else start
                last = first + (1 - args.num_steps if reverse else args.num_steps - 1)
                low, high = min(first, last), max(first, last)
                begin_row, end_row = offsets[low], offsets[high + 1] if high + 1 < steps else len(self.index)
                to = args.directions[d]
                weights = self.weights[d]
                flat = self.x.reshape(-1, p.input_size)[self.index[begin_row:end_row]]
                if weights.w_ih is not None:
                    to.gates = self._address((flat @ weights.w_ih.T).astype(np.float32))
                to.weight_hh, to.bias_ih, to.bias_hh = map(self._bits, (weights.w_hh, weights.b_ih, weights.b_hh))
                gpu.fill(to.vectors, list(map(self._bits, weights.vectors)))
                states = list(map(self._bits, self.initial[d]))
                is_first, is_last = number == 0, number == len(starts) - 1
                gpu.fill(to.begin, states if is_first else [each.ctypes.data for each in carried[d]])
                gpu.fill(to.end, [each.ctypes.data for each in (self.ends if is_last else carried)[d]])
                to.begin_is_float, to.end_is_float = int(not is_first), int(not is_last)
                if self.to_initial:
                    gpu.fill(to.initial, states)
                to.y = self.y.ctypes.data + p.itemsize * (self.y_offset + d * width)
                to.restart = restarts[d]
                to.first_gate_row, to.first_step, to.reverse = int(begin_row), first, int(reverse)
            launches.append(args)
        return launches

    def results(self):
        """(y [T, B, H], final states) of each direction."""
        width = self.problem.hidden_size
        found = []
        for d in range(len(self.directions)):
            start = self.y_offset + d * width
            y = np.zeros((self.steps * self.batch, width))
            y[self.index] = from_bits(np.ascontiguousarray(self.y[:, start : start + width]), self.problem.dtype)
            ends = [from_bits(each, self.problem.dtype) for each in self.ends[d]]
            found.append((y.reshape(self.steps, self.batch, width), ends))
        return found

    def compare(self):
        """Every output beside the reference's.

        Raises:
            AssertionError: one is off by more than the tolerance, or is NaN where the other is not.
        """
        for d, ((y, ends), (wanted, wanted_ends)) in enumerate(zip(self.results(), self.expected())):
            for name, got, want in [("y", y, wanted), *zip(self.problem.cell.states, ends, wanted_ends)]:
                assert (np.isnan(got) == np.isnan(want)).all(), (
                    f"direction {d}: NaN in {name} not where the reference has it"
                )
                error = np.nanmax(np.abs(got - want) / np.maximum(1, np.abs(want)), initial=0)
                assert error <= TOLERANCE[self.problem.dtype, self.problem.math], (
                    f"direction {d}: {name} is off by {error:.1e}"
                )
