"""What the machine is, as values: read from the system's own tables, without native code."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path

# Instruction sets by the flags that the kernel must report for them, best first.
_X86_LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"},
    "x86-64": set[str](),
}
_CACHE_DEFAULTS = {"L1": 32 << 10, "L2": 512 << 10, "L3": 8 << 20}  # where the system does not say: modest


@dataclass(frozen=True)
class CpuRates:
    """What one core does at best.

    Attributes:
        gflops: billions of float32 operations a second, a multiply-add counted as two.
        l1_gbytes_per_s, l2_gbytes_per_s, l3_gbytes_per_s, memory_gbytes_per_s: of reading; without an L3, its rate is the memory's.
    """

    gflops: float
    l1_gbytes_per_s: float
    l2_gbytes_per_s: float
    l3_gbytes_per_s: float
    memory_gbytes_per_s: float

    def __str__(self) -> str:
        levels = zip(
            ("L1", "L2", "L3", "memory"),
            (self.l1_gbytes_per_s, self.l2_gbytes_per_s, self.l3_gbytes_per_s, self.memory_gbytes_per_s),
        )
        return f"{', '.join(f'{home} {rate:.0f}' for home, rate in levels)} GB/s; {self.gflops:.0f} GFLOP/s"


@dataclass(frozen=True)
class CpuFacts:
    """A CPU as a plan sees it.

    Attributes:
        name: as the system gives it.
        isas: instruction sets that the CPU has, best first: ``x86-64-v4`` (AVX-512), ``x86-64-v3`` (AVX2 and FMA), ``x86-64``,
            ``neon``; empty for another architecture.
        cores: how many this process may use: the smaller of its affinity and its cgroup's quota.
        l1d_bytes, l2_bytes: of one core.
        l3_bytes: shared by cores; 0 if there is none.
        rates: of this CPU, where somebody measured them; plan/cost.py has others to plan with.
    """

    name: str
    isas: tuple[str, ...]
    cores: int
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    rates: CpuRates | None = None

    def __str__(self) -> str:
        caches = ", ".join(
            f"{level} {num_bytes >> 10} KiB"
            for level, num_bytes in (("L1", self.l1d_bytes), ("L2", self.l2_bytes), ("L3", self.l3_bytes))
        )
        return f"{self.name}: {self.cores} cores, {' '.join(self.isas) or 'no known instruction set'}, {caches}"


@dataclass(frozen=True)
class GpuFacts:
    """A GPU as a plan sees it.

    Attributes:
        arch: what kernels are compiled for.
        active_clusters: (cluster size, clusters that run at once with one CTA on each SM), by size; empty without clusters.
        registers: of an SM; a thread takes at most `thread_registers`.
        shared_bytes: that one CTA can have.
        memory_gbytes_per_s: for what streams through: the input product.
        half_tflops: dense, 16-bit numbers, sums in float32.
        reserved_sms: left to others; `sms` and `active_clusters` are without them.
    """

    name: str
    arch: str
    sms: int
    active_clusters: tuple[tuple[int, int], ...]
    clock_mhz: int
    shared_bytes: int
    memory_gbytes_per_s: int
    half_tflops: int
    registers: int = 65536
    thread_registers: int = 255
    l2_bytes: int = 50 << 20
    reserved_sms: int = 0

    def without(self, reserved_sms: int) -> GpuFacts:
        """The GPU with so many SMs fewer for the kernels that stay on it.

        Raises:
            ValueError: none would be left.
        """
        if not 0 <= reserved_sms < self.sms:
            raise ValueError(
                f"{self.name} has {self.sms} SMs, of which 0 to {self.sms - 1} can be reserved, not {reserved_sms}"
            )
        sms = self.sms - reserved_sms
        clusters = tuple((size, count * sms // self.sms) for size, count in self.active_clusters)
        return replace(
            self,
            sms=sms,
            active_clusters=tuple(each for each in clusters if each[1]),
            reserved_sms=self.reserved_sms + reserved_sms,
        )

    @property
    def cluster_sizes(self) -> tuple[int, ...]:
        """Cluster sizes that exist."""
        return tuple(size for size, _ in self.active_clusters)

    def __str__(self) -> str:
        sms = f"{self.sms} SMs" + (f" ({self.reserved_sms} more are reserved)" if self.reserved_sms else "")
        return f"{self.name}: {self.arch}, {sms} at {self.clock_mhz} MHz, {self.shared_bytes >> 10} KiB shared memory a CTA"


# Counts of clusters were asked of an H200 (cudaOccupancyMaxActiveClusters); they differ between chips of one name, so a launch asks again.
# Those of sm_100 and sm_120 are in its proportion to the SMs; all else is from NVIDIA's data sheets.
_HOPPER_CLUSTERS = ((1, 132), (2, 66), (4, 31), (8, 15), (16, 7))
_SM_100_CLUSTERS = ((1, 148), (2, 74), (4, 34), (8, 16), (16, 7))
_SM_120_CLUSTERS = ((1, 170), (2, 85), (4, 39), (8, 19))
GPUS = {
    "a100": GpuFacts("NVIDIA A100", "sm_80", 108, (), 1410, 163 << 10, 2039, 312, l2_bytes=40 << 20),
    "a10": GpuFacts("NVIDIA A10", "sm_86", 72, (), 1695, 99 << 10, 600, 125, l2_bytes=6 << 20),
    "3090": GpuFacts("NVIDIA GeForce RTX 3090", "sm_86", 82, (), 1695, 99 << 10, 936, 71, l2_bytes=6 << 20),
    "l4": GpuFacts("NVIDIA L4", "sm_89", 58, (), 2040, 99 << 10, 300, 121, l2_bytes=48 << 20),
    "l40s": GpuFacts("NVIDIA L40S", "sm_89", 142, (), 2520, 99 << 10, 864, 362, l2_bytes=96 << 20),
    "4090": GpuFacts("NVIDIA GeForce RTX 4090", "sm_89", 128, (), 2520, 99 << 10, 1008, 165, l2_bytes=72 << 20),
    "h100": GpuFacts("NVIDIA H100", "sm_90a", 132, _HOPPER_CLUSTERS, 1980, 227 << 10, 3350, 989),
    "h200": GpuFacts("NVIDIA H200", "sm_90a", 132, _HOPPER_CLUSTERS, 1980, 227 << 10, 4800, 989),
    "b200": GpuFacts("NVIDIA B200", "sm_100", 148, _SM_100_CLUSTERS, 1965, 227 << 10, 8000, 2250, l2_bytes=126 << 20),
    "5090": GpuFacts(
        "NVIDIA GeForce RTX 5090", "sm_120", 170, _SM_120_CLUSTERS, 2407, 99 << 10, 1792, 209, l2_bytes=96 << 20
    ),
}


def probe_cpu(root: Path = Path("/")) -> CpuFacts:
    """The CPU of this machine.

    Args:
        root: where ``proc`` and ``sys`` are found; another folder in tests.
    """
    cpuinfo = _cpuinfo(root)
    caches = {**_CACHE_DEFAULTS, **_caches(root)}
    quota = _cgroup_quota(root)
    cores = _affinity()
    return CpuFacts(
        name=cpuinfo.get("model name") or platform.processor() or platform.machine() or "unknown CPU",
        isas=_isas(cpuinfo),
        cores=cores if quota is None else max(1, min(cores, int(quota))),
        l1d_bytes=caches["L1"],
        l2_bytes=caches["L2"],
        l3_bytes=caches["L3"],
    )


def _read(path: Path) -> str:
    """The text of a small file; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor's fields of /proc/cpuinfo."""
    first = _read(root / "proc/cpuinfo").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _isas(cpuinfo: dict[str, str]) -> tuple[str, ...]:
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        flags = set(cpuinfo.get("flags", "").split())
        return tuple(name for name, needed in _X86_LEVELS.items() if needed <= flags)
    return ("neon",) if machine in ("aarch64", "arm64") else ()


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _caches(root: Path) -> dict[str, int]:
    """Bytes of the data caches of core 0 by level."""
    found: dict[str, int] = {}
    indices = sorted(root.glob("sys/devices/system/cpu/cpu0/cache/index*"))
    for index in indices:
        size = _read(index / "size")
        if _read(index / "type") != "Instruction" and size[:-1].isdecimal():
            found[f"L{_read(index / 'level')}"] = int(size[:-1]) << {"K": 10, "M": 20}[size[-1]]
    if indices:
        found.setdefault("L3", 0)  # a machine that lists its caches and no third level has none
    return found


def _cgroup_quota(root: Path) -> float | None:
    """Cores' worth of time that the cgroups of this process grant: the least of its own and its ancestors'; None: no limit."""
    mount = root / "sys/fs/cgroup"
    quotas = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if line.startswith("0::"):
            bases = [mount, mount / "unified"]
        elif "cpu" in controllers.split(","):
            bases = [mount / controllers, mount / "cpu"]
        else:
            continue
        inner = Path(path.lstrip("/"))
        for base in bases:
            for folder in (base / inner, *(base / parent for parent in inner.parents)):
                limit, period = (_read(folder / "cpu.max").split() + ["", ""])[:2]
                if not limit:
                    limit, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
                if limit.isdecimal() and period.isdecimal() and int(period) > 0:  # "max" and -1 mean no limit
                    quotas.append(int(limit) / int(period))
    return min(quotas, default=None)
