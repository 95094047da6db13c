"""Problem: what is to be computed, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from prnn.cells import Cell

DTYPES = ("float32", "float64")  # of every engine
HALF_DTYPES = ("float16", "bfloat16")  # of the GPU's engines: products take 16-bit numbers, all else is float32
MATHS = ("ieee", "tf32")
WEIGHTS = ("same", "bfloat16", "int8")  # what the matrices are kept in


@dataclass(frozen=True)
class Problem:
    """One layer of a recurrent network. Steps, batch and lengths are run-time values and not part of it.

    Attributes:
        dtype: of the arithmetic; one of DTYPES or HALF_DTYPES.
        training: the forward pass keeps what the backward pass needs.
        math: of the products; ``tf32`` lets a GPU round their float32 factors to 10 bits of mantissa. A CPU never does.
        weights: what the matrices are kept in (see narrow.py); one of WEIGHTS. Narrow ones go with float32 and without training.
    """

    cell: Cell
    input_size: int
    hidden_size: int
    proj_size: int = 0
    bias: bool = True
    dtype: str = "float32"
    training: bool = False
    math: str = "ieee"
    weights: str = "same"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES + HALF_DTYPES:
            raise ValueError(f"dtype must be one of {DTYPES + HALF_DTYPES}, got {self.dtype!r}")
        if self.math not in MATHS or self.math == "tf32" and self.dtype != "float32":
            raise ValueError(
                f"math must be one of {MATHS}, and 'tf32' is of float32 only, got {self.math!r} with {self.dtype!r}"
            )
        if self.weights not in WEIGHTS:
            raise ValueError(f"weights must be one of {WEIGHTS}, got {self.weights!r}")
        if self.weights != "same" and (self.dtype != "float32" or self.training):
            mode = "training" if self.training else "inference"
            raise ValueError(
                f"{self.weights} weights are for inference in float32, this is {mode} in {self.dtype}; use weights 'same'"
            )
        for name in ("input_size", "hidden_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.proj_size < 0 or self.proj_size >= self.hidden_size and self.proj_size > 0:
            raise ValueError(f"proj_size must be 0 or less than hidden_size {self.hidden_size}, got {self.proj_size}")
        if self.proj_size and self.cell.reads_output_elementwise:
            raise ValueError(
                f"cell {self.cell.name!r} uses its output state unit by unit, so the output cannot be projected; "
                "proj_size must be 0"
            )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        sizes = (self.input_size, self.hidden_size, self.proj_size)
        return hash((self.cell, *sizes, self.bias, self.dtype, self.training, self.math, self.weights))

    @property
    def output_size(self) -> int:
        """Width of y, of h and of the recurrent matrix."""
        return self.proj_size or self.hidden_size

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Width of every state; the first is the output."""
        return (self.output_size, *(self.hidden_size for _ in self.cell.states[1:]))

    @cached_property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every parameter of one direction, in the order of `LayerWeights` and of torch.nn."""
        num_input = len(self.cell.input_gates) * self.hidden_size
        num_recurrent = len(self.cell.recurrent_gates) * self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (num_input, self.input_size),
            "weight_hh": (num_recurrent, self.output_size),
        }
        if self.bias:
            shapes |= {"bias_ih": (num_input,), "bias_hh": (num_recurrent,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        shapes |= dict.fromkeys(self.cell.vectors, (self.hidden_size,))
        return {name: shape for name, shape in shapes.items() if shape[0]}

    @property
    def itemsize(self) -> int:
        return {"float32": 4, "float64": 8}.get(self.dtype, 2)

    @property
    def input_itemsize(self) -> int:
        """Of the matrix that meets the input."""
        return self.itemsize if self.weights == "same" else 2

    @property
    def recurrent_itemsize(self) -> int:
        """Of the matrices that meet the state."""
        return 1 if self.weights == "int8" else self.input_itemsize

    def __str__(self) -> str:
        projection = f" projected to {self.proj_size}" if self.proj_size else ""
        mode = "training" if self.training else "inference"
        dtype = self.dtype + (" as tf32" if self.math == "tf32" else "")
        weights = "" if self.weights == "same" else f" with {self.weights} weights"
        return f"{self.cell.name} {self.input_size} -> {self.hidden_size}{projection}, {dtype}{weights}, {mode}"
