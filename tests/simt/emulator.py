"""Compile kernels for the CPU emulator and run them from numpy arrays, with the same launches and arguments as on a GPU."""

import ctypes
import hashlib
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from prnn.kernels import gpu

HERE = Path(__file__).parent
FLAGS = ["-std=c++20", "-O1", "-fPIC", "-shared", "-Wall", "-Wno-unknown-pragmas", "-mf16c"]
RUN_WITH = "template <class A> void run_with(void (*kernel)(const A&), const void* args) { kernel(*static_cast<const A*>(args)); }"
ENTRY = """
extern "C" int run_{index}(const void* args, int ctas, int cluster_size, uint64_t seed, uint64_t lost_store,
                           char* message, int size) {{
  using namespace prnn::case_{index};
  using Kernel = prnn::{template}<Problem, Config, Cell>;
  simt::Launch launch{{ctas, Kernel::num_threads, cluster_size ? cluster_size : 1, sizeof(Kernel::Shared), seed}};
  launch.lost_store = lost_store, launch.waits_expire = lost_store != ~0ull;
  try {{
    simt::launch(launch, [&] {{ run_with(&Kernel::run, args); }});
    return 0;
  }} catch (const simt::Fault& fault) {{
    std::snprintf(message, size, "%s", fault.what());
    return 1;
  }}
}}
extern "C" int threads_{index}() {{ return prnn::{template}<prnn::case_{index}::Problem, prnn::case_{index}::Config,
                                                          prnn::case_{index}::Cell>::num_threads; }}
extern "C" int shared_{index}() {{ return sizeof(prnn::{template}<prnn::case_{index}::Problem, prnn::case_{index}::Config,
                                                                prnn::case_{index}::Cell>::Shared); }}
"""


class Kernel:
    """A compiled kernel on the emulator."""

    def __init__(self, library, index):
        self._run = getattr(library, f"run_{index}")
        self._run.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_uint64,
            ctypes.c_uint64,
            ctypes.c_char_p,
            ctypes.c_int,
        ]
        self.threads, self.shared_bytes = getattr(library, f"threads_{index}")(), getattr(library, f"shared_{index}")()

    def __call__(self, launch, arguments, seed, lost_store=2**64 - 1):
        """None, or the emulator's report of what went wrong."""
        message = ctypes.create_string_buffer(4000)
        failed = self._run(
            ctypes.addressof(arguments), launch.ctas, launch.cluster_size, seed, lost_store, message, len(message)
        )
        return message.value.decode() if failed else None


def build(family, cases, folder, mutation=0, header=None):
    """One Kernel for each of `cases` (problem, config, features); two compilers run at a time."""
    objects = [folder / "simt.o"]
    jobs = [["g++", *FLAGS[:3], "-O2", "-c", str(HERE / "simt.cpp"), "-o", str(objects[0])]]
    for start in range(0, len(cases), 4):
        lines = ["#include <cstdio>", f'#include "{header or family.NAME}.cuh"', RUN_WITH]
        for index in range(start, min(start + 4, len(cases))):
            lines.append(f"namespace prnn {{ namespace case_{index} {{\n{gpu.structs(*cases[index])}}} }}")
            lines.append(ENTRY.format(index=index, template=family.TEMPLATE))
        path = folder / f"cases_{start}.cpp"
        path.write_text("\n".join(lines))
        objects.append(path.with_suffix(".o"))
        command = [
            "g++",
            *FLAGS,
            f"-DMUTATION={mutation}",
            f"-I{gpu.SOURCES}",
            f"-I{HERE}",
            "-c",
            str(path),
            "-o",
            str(objects[-1]),
        ]
        jobs.append(command)
    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(lambda job: subprocess.run(job, capture_output=True, text=True), jobs):
            assert done.returncode == 0, done.stderr
    library = folder / f"kernels_{hashlib.sha256(str(objects).encode()).hexdigest()[:8]}.so"
    subprocess.run(["g++", "-shared", "-o", str(library), *map(str, objects)], check=True)
    loaded = ctypes.CDLL(str(library))
    return [Kernel(loaded, index) for index in range(len(cases))]


def has_compiler():
    """True if the emulator can be built here."""
    return shutil.which("g++") is not None


def to_bits(values, dtype):
    """Numbers in the type of a problem, as unsigned integers of its size."""
    if dtype == "float32":
        return np.asarray(values, np.float32).view(np.uint32)
    if dtype == "float16":
        return np.asarray(values, np.float32).astype(np.float16).view(np.uint16)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def from_bits(bits, dtype):
    """The numbers, as float64."""
    if dtype == "float32":
        return bits.view(np.float32).astype(np.float64)
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
