"""prepare(problem) -> Executable: the only file that knows both plan and runtime."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from prnn import env, facts, narrow
from prnn.errors import BuildError, PrnnFallbackWarning
from prnn.kernels import cpu_inplace, interpreted
from prnn.kernels.gpu import Arguments, Features, GpuFamily, Launch
from prnn.plan import GPU_FAMILIES, GpuPlan, Plan, choose, choose_gpu, with_rates
from prnn.problem import Problem
from prnn.runtime import cache
from prnn.runtime.cpu import library
from prnn.runtime.cpu.compiler import NO_COMPILER, find_compiler
from prnn.runtime.cpu.native import NativeLayer
from prnn.runtime.cuda import compiler, driver
from prnn.runtime.cuda.kernel import Kernel, raise_if_stopped
from prnn.specs import Available, LayerWeights, Rows

Array = Any


class Executable:
    """A problem bound to the family that runs it. Calling it plans nothing.

    Arrays are numpy arrays or CPU torch tensors of the problem's dtype, narrow matrices as narrow.py makes them; autograd does not see
    the call. x, states, weights, saved and all gradients are contiguous; y and d_y may have a larger row stride (they may be one
    direction's columns of a wider array).
    Where rows or sequences are the first of two dimensions, a contiguous array may have more: [T, B, I] for [num_rows, I],
    [1, B, H] for [B, H].
    """

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem = problem
        self.plan = plan

    def saved_size(self, num_rows: int) -> int:
        """Elements of the `saved` array of a training forward over `num_rows` rows."""
        raise NotImplementedError

    def forward(
        self,
        x: Array,
        states: tuple[Array, ...],
        weights: LayerWeights,
        rows: Rows,
        y: Array,
        final_states: tuple[Array, ...],
        saved: Array | None = None,
    ) -> None:
        """Run a sequence through the layer.

        Args:
            x: [num_rows, I].
            states: initial states, [B, P] for the first and [B, H] for the others.
            y: [num_rows, P]; written.
            final_states: like `states`; written: each sequence's state after its last processed step. May not alias `states`.
            saved: [saved_size(num_rows)]; written: what `backward` needs.
        """
        raise NotImplementedError

    def backward(
        self,
        x: Array,
        weights: LayerWeights,
        rows: Rows,
        saved: Array,
        d_y: Array,
        d_final_states: tuple[Array, ...],
        d_x: Array | None,
        d_states: tuple[Array, ...],
        d_weights: LayerWeights,
    ) -> None:
        """Gradients of a sequence that `forward` ran with `saved`.

        Args:
            d_y: [num_rows, P], gradient that arrives at y.
            d_final_states: like the states; gradient that arrives at the final states.
            d_x, d_states, d_weights: overwritten with the gradients; d_x and members of d_weights may be None (not wanted).
        """
        raise NotImplementedError

    def bind(
        self,
        x: Array,
        states: tuple[Array, ...],
        weights: LayerWeights,
        rows: Rows,
        y: Array,
        final_states: tuple[Array, ...],
        snapshot: Array,
    ) -> Callable[[], None]:
        """`forward` as a call without arguments, over the same arrays every time; they must outlive it.

        Args:
            snapshot: what `snapshot(weights)` returned; weights that were packed then are not read again.
        """
        return partial(self.forward, x, states, weights, rows, y, final_states)

    def snapshot(self, weights: LayerWeights) -> Array:
        """The weights in the form that this family reads fastest, or None if it reads them where they are."""
        return None


class _Native(Executable):
    def __init__(self, problem: Problem, plan: Plan) -> None:
        super().__init__(problem, plan)
        layer = NativeLayer(problem, plan.config.isa, plan.config.threads, plan.family == cpu_inplace.NAME)
        self.saved_size, self.forward, self.backward = layer.saved_size, layer.forward, layer.backward  # type: ignore[method-assign]
        self.snapshot, self.bind = layer.pack, layer.bind  # type: ignore[method-assign]


class _Interpreted(Executable):
    def saved_size(self, num_rows: int) -> int:
        return interpreted.saved_size(self.problem, num_rows)

    def forward(self, x, states, weights, rows, y, final_states, saved=None):  # type: ignore[no-untyped-def]
        interpreted.forward(
            self.problem,
            _matrix(x),
            _matrices(states),
            narrow.widened(_weights(weights)),
            rows,
            _matrix(y),
            _matrices(final_states),
            _view(saved),
        )

    def backward(self, x, weights, rows, saved, d_y, d_final_states, d_x, d_states, d_weights):  # type: ignore[no-untyped-def]
        interpreted.backward(
            self.problem,
            _matrix(x),
            _weights(weights),
            rows,
            _view(saved),
            _matrix(d_y),
            _matrices(d_final_states),
            _matrix(d_x),
            _matrices(d_states),
            _weights(d_weights),
        )


def _view(array: Array) -> Array:
    """The same memory as a numpy array."""
    return array.detach().numpy() if hasattr(array, "data_ptr") else array


def _matrix(array: Array) -> Array:
    """The same memory as a numpy matrix: all dimensions but the last are one."""
    return None if array is None else _view(array).reshape(-1, array.shape[-1])


def _matrices(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(map(_matrix, arrays))


def _weights(weights: LayerWeights) -> LayerWeights:
    w_ih, w_hh, b_ih, b_hh, w_hr = map(_view, weights[:5])
    vectors, scales = tuple(map(_view, weights.vectors)), tuple(map(_view, weights.scales))
    return LayerWeights(w_ih, w_hh, b_ih, b_hh, w_hr, vectors, scales)


def available() -> Available:
    """What this installation can run; nothing is compiled."""
    path = library.library_path()
    compiler = find_compiler()
    return Available(
        threads=num_threads(),
        library=str(path or ""),
        isas=library.usable_isas(),
        no_library=library.MISSING,
        compiler="" if env.compile_forbidden() or compiler is None else compiler,
        no_compiler="PRNN_NO_COMPILE forbids it" if env.compile_forbidden() else NO_COMPILER,
    )


def prepare(problem: Problem, batch: int = 1, steps: int = 1, backend: str = "auto", held: bool = False) -> Executable:
    """Choose how to run `problem`; `batch` and `steps` are the sizes to choose for, any others still run.

    Sizes are rounded up to powers of two, so that similar calls share an Executable. `held`: the weights will be bound with a
    `snapshot` that outlives the call, as a Stream does.

    Raises:
        ValueError: no family is called `backend`.
        UnsupportedProblem: the family that `backend` names cannot run it.
        BuildError: a user's cell does not compile.
    """
    return _prepare(problem, _bucket(batch), _bucket(steps), backend, held, num_threads())


def plan(
    problem: Problem,
    batch: int = 1,
    steps: int = 1,
    backend: str = "auto",
    held: bool = False,
    rates: facts.CpuRates | None = None,
) -> Plan:
    """The plan that `prepare` follows for the same arguments, without loading a kernel or compiling a cell.

    Args:
        rates: of a core of this machine, to estimate with; the choice does not depend on them.

    Raises:
        ValueError, UnsupportedProblem: as `prepare`.
    """
    chosen = choose(problem, _cpu(), _bucket(batch), _bucket(steps), available(), backend, held)
    return chosen if rates is None else with_rates(chosen, replace(_cpu(), rates=rates), held)


def _bucket(size: int) -> int:
    return 1 << (max(size, 1) - 1).bit_length()


@lru_cache(maxsize=1024)
def _prepare(problem: Problem, batch: int, steps: int, backend: str, held: bool, threads: int) -> Executable:
    chosen = plan(problem, batch, steps, backend, held)
    if chosen.family != interpreted.NAME:
        return _Native(problem, chosen)
    if backend == "auto":
        refused = "; ".join(str(each) for each in chosen.candidates if each.refused)
        warnings.warn(
            f"{problem.cell.name} runs interpreted, which is slow: {refused}", PrnnFallbackWarning, stacklevel=3
        )
    return _Interpreted(problem, chosen)


@lru_cache(maxsize=1)
def _cpu() -> facts.CpuFacts:
    return facts.probe_cpu()


class GpuExecutable:
    """A problem bound to a kernel on one device. Launching it plans nothing and allocates nothing.

    Attributes:
        directions: that one launch computes.
        kernel: shared by the plans that chose it for other batches and steps; ops/launched.py launches that of the family `launched`.
        copies_at_once: copies of R that one launch computes, at most; 0: all.
    """

    def __init__(self, plan: GpuPlan, kernel: Kernel, copies_at_once: int = 0) -> None:
        self.problem, self.plan, self.directions = plan.problem, plan, plan.directions
        self.kernel, self.copies_at_once = kernel, copies_at_once

    def workspace_bytes(self, batch: int) -> int:
        """Of device memory that `arguments.exchange` points to, all zero before every launch."""
        return _workspace_bytes(self, batch)

    def launch(self, arguments: Arguments, stream: int) -> None:
        """Run a chunk of steps (see kernels/gpu.py) on a stream of the current context: one launch, or as many as it takes where all
        CTAs of a launch must run at once.

        Raises:
            PrnnError: the driver refuses, or an earlier launch gave up waiting.
        """
        raise_if_stopped()
        arguments.copies_per_direction, parts = _parts(self, arguments.batch)
        for first, part in parts:
            arguments.first_copy = first
            self.kernel.launch(part, arguments, stream)


@lru_cache(maxsize=4096)
def _workspace_bytes(executable: GpuExecutable, batch: int) -> int:
    family = _gpu_family(executable.plan.family)
    return family.workspace_bytes(executable.problem, executable.plan.config, batch, executable.directions)


@lru_cache(maxsize=4096)
def _parts(executable: GpuExecutable, batch: int) -> tuple[int, list[tuple[int, Launch]]]:
    """Copies of R in a direction, and the launches of a chunk, each with the first copy of its own."""
    family = _gpu_family(executable.plan.family)
    whole = family.launch(executable.problem, executable.plan.config, batch, executable.directions)
    at_once = executable.copies_at_once or whole.copies
    parts = []
    for first in range(0, whole.copies, at_once):
        copies = min(at_once, whole.copies - first)
        parts.append((first, replace(whole, ctas=whole.ctas // whole.copies * copies, copies=copies)))
    return whole.copies // executable.directions, parts


def plan_gpu(
    problem: Problem, facts: facts.GpuFacts, batch: int = 1, steps: int = 1, directions: int = 1, backend: str = "auto"
) -> GpuPlan:
    """How a GPU that need not be at hand would run `problem`.

    Raises:
        ValueError: no family is called `backend`.
        UnsupportedProblem: no family, or not the named one, can run it.
    """
    return choose_gpu(problem, facts.without(_reserved_sms), _bucket(batch), _bucket(steps), directions, backend)


def prepare_gpu(
    problem: Problem,
    device: int,
    features: Features,
    batch: int = 1,
    steps: int = 1,
    directions: int = 1,
    backend: str = "auto",
) -> GpuExecutable:
    """Choose and compile how `device` runs `problem`; as `prepare` does for the CPU.

    Raises:
        ValueError, UnsupportedProblem: as `plan_gpu`.
        BuildError, MissingDependency: the kernel can be neither found nor compiled.
    """
    driver.make_current(device)
    return _prepare_gpu(problem, device, features, _bucket(batch), _bucket(steps), directions, backend, _reserved_sms)


@lru_cache(maxsize=1024)
def _prepare_gpu(
    problem: Problem,
    device: int,
    features: Features,
    batch: int,
    steps: int,
    directions: int,
    backend: str,
    reserved_sms: int,
) -> GpuExecutable:
    here = driver.probe(device).without(reserved_sms)
    refused: dict[tuple[str, Any], str] = {}
    while True:  # ends: every round refuses one more candidate, or returns
        chosen = choose_gpu(problem, here, batch, steps, directions, backend, refused)
        kernel = _kernel(problem, device, features, chosen.family, chosen.config)
        if not chosen.chosen.resources.ctas:  # nothing has to stay on the chip
            return GpuExecutable(chosen, kernel)
        launch = _gpu_family(chosen.family).launch(problem, chosen.config, batch, directions)
        size, ctas = launch.cluster_size, launch.ctas // launch.copies
        at_once = kernel.ctas_per_sm() * here.sms // ctas if launch.is_cooperative else 0
        if reserved_sms:  # CTAs spread over all SMs before two share one, so there may be no more of them than SMs
            at_once = here.sms // ctas
        if kernel.local_bytes:
            reason = f"compiled, it spills {kernel.local_bytes} bytes a thread beside {kernel.registers} registers"
        elif launch.is_cooperative and at_once == 0:
            reason = f"its {ctas} CTAs with {kernel.threads} threads and {kernel.registers} registers do not run at once on {here.name}"
        elif not launch.is_cooperative and kernel.active_clusters(size) == 0:
            reason = f"no cluster of {size} CTAs with {kernel.threads} threads and {kernel.registers} registers fits {here.name}"
        else:
            return GpuExecutable(chosen, kernel, at_once)
        refused[chosen.family, chosen.config] = reason


@lru_cache(maxsize=4096)
def _kernel(problem: Problem, device: int, features: Features, name: str, config: Any) -> Kernel:
    """One kernel serves all batches, steps and input sizes."""
    needs = _gpu_family(name).resources(problem, config)
    code = compiler.cubin(*_kernel_key(problem, driver.probe(device).arch, features, name, config))
    return Kernel(code, device, needs.threads, needs.shared_bytes)


def _kernel_key(problem: Problem, arch: str, features: Features, name: str, config: Any) -> tuple[str, str, str]:
    """What names a kernel in the cache: its text, the architecture and a label."""
    text = _gpu_family(name).source(problem, config, features)
    return text, arch, f"{name}-{problem.cell.name}-{problem.hidden_size}"


def compile_gpu(
    problem: Problem,
    facts: facts.GpuFacts,
    features: Features,
    batch: int = 1,
    steps: int = 1,
    directions: int = 1,
    backend: str = "auto",
) -> tuple[GpuPlan, cache.Entry]:
    """Compile, into the cache, what a GPU that need not be at hand is expected to run; what spills is passed over, as `prepare_gpu` does.

    A GPU at hand may still take another kernel: it is asked how many CTAs of a kernel run at once.

    Raises:
        ValueError, UnsupportedProblem: as `plan_gpu`.
        BuildError, MissingDependency: the kernel cannot be compiled, or the cache cannot be written.
    """
    here = facts.without(_reserved_sms)
    refused: dict[tuple[str, Any], str] = {}
    while True:  # ends: every round refuses one more candidate, or returns
        chosen = choose_gpu(problem, here, _bucket(batch), _bucket(steps), directions, backend, refused)
        key = _kernel_key(problem, facts.arch, features, chosen.family, chosen.config)
        compiler.cubin(*key)
        entry = cache.kernel(compiler.entry_of(*key))
        if entry.broken:
            raise BuildError(
                f"the kernel was compiled, but {entry.path} cannot be written ({entry.broken}); PRNN_CACHE_DIR names another folder"
            )
        if not entry.local_bytes or not chosen.chosen.resources.ctas:
            return chosen, entry
        refused[chosen.family, chosen.config] = f"compiled, it spills {entry.local_bytes} bytes a thread"


def _gpu_family(name: str) -> GpuFamily:
    return next(family for family in GPU_FAMILIES if name == family.NAME)


_num_threads: int | None = None
_reserved_sms = 0


def set_reserved_sms(count: int) -> None:
    """Leave `count` SMs of every GPU to other kernels, for example those of a collective: a layer whose weights stay on the chip then
    occupies at most the others, and large batches take several launches. What is launched step by step, and matrix products, do not heed
    it. Calls made from now on, of all threads, follow it.

    Raises:
        ValueError: count is negative. A call raises it for a GPU of no more than `count` SMs.
    """
    global _reserved_sms
    if count < 0:
        raise ValueError(f"the number of reserved SMs must be at least 0, got {count}")
    _reserved_sms = count


def set_num_threads(count: int | None) -> None:
    """Threads that a call may use; None returns to the default. Small layers use one whatever the limit.

    Raises:
        ValueError: count is less than 1.
    """
    global _num_threads
    if count is not None and count < 1:
        raise ValueError(f"the number of threads must be at least 1, got {count}")
    _num_threads = count


def num_threads() -> int:
    """Threads that a call may use: what set_num_threads or PRNN_NUM_THREADS says, else the cores this process may use, but not
    more than torch uses where torch is loaded."""
    if _num_threads is not None:
        return _num_threads
    default = _default_threads()
    torch = sys.modules.get("torch")
    return default if torch is None else min(default, torch.get_num_threads())


@lru_cache(maxsize=1)
def _default_threads() -> int:
    return env.num_threads() or _cpu().cores
