"""The CPU as values, read from made-up system tables."""

import os
import platform

import pytest

from prnn import facts
from prnn.facts import CpuFacts, probe_cpu

AVX2 = "fpu sse2 avx2 fma bmi1 bmi2 f16c movbe"
AVX512 = AVX2 + " avx512f avx512bw avx512cd avx512dq avx512vl"


def write(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """An x86 machine with 8 cores, AVX2 and three cache levels."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    first, second = f"processor : 0\nmodel name : Test CPU 9000\nflags : {AVX2}", "processor : 1\nmodel name : other"
    write(tmp_path, "proc/cpuinfo", f"{first}\n\n{second}")
    caches = [(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2048K"), (3, "Unified", "36M")]
    for index, (level, kind, size) in enumerate(caches):
        folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        write(tmp_path, f"{folder}/level", str(level))
        write(tmp_path, f"{folder}/type", kind)
        write(tmp_path, f"{folder}/size", size)
    return tmp_path


def test_everything_that_the_system_says(machine):
    assert probe_cpu(machine) == CpuFacts("Test CPU 9000", ("x86-64-v3", "x86-64"), 8, 48 << 10, 2 << 20, 36 << 20)


@pytest.mark.parametrize(
    ("flags", "isas"),
    [
        ("fpu sse2", ("x86-64",)),
        ("fpu sse2 avx2", ("x86-64",)),
        (AVX2, ("x86-64-v3", "x86-64")),
        (AVX512, ("x86-64-v4", "x86-64-v3", "x86-64")),
        (AVX2 + " avx512f", ("x86-64-v3", "x86-64")),
    ],
)
def test_an_instruction_set_needs_all_its_flags(machine, flags, isas):
    write(machine, "proc/cpuinfo", f"flags : {flags}")
    assert probe_cpu(machine).isas == isas


@pytest.mark.parametrize(
    ("name", "isas"),
    [("aarch64", ("neon",)), ("arm64", ("neon",)), ("AMD64", ("x86-64-v3", "x86-64")), ("riscv64", ())],
)
def test_other_architectures(machine, monkeypatch, name, isas):
    monkeypatch.setattr(platform, "machine", lambda: name)
    assert probe_cpu(machine).isas == isas


def test_a_machine_without_a_third_level_has_none(machine):
    for name in ("level", "type", "size"):
        (machine / "sys/devices/system/cpu/cpu0/cache/index3" / name).unlink()
    (machine / "sys/devices/system/cpu/cpu0/cache/index3").rmdir()
    assert probe_cpu(machine).l3_bytes == 0


def test_a_system_without_these_tables_gets_modest_values(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    found = probe_cpu(tmp_path)
    assert found.name and found.cores == 1
    assert (found.l1d_bytes, found.l2_bytes, found.l3_bytes) == (32 << 10, 512 << 10, 8 << 20)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"proc/self/cgroup": "0::/"}, 8),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, 8),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "350000 100000"}, 3),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
                "sys/fs/cgroup/a/cpu.max": "200000 100000",
            },
            2,
        ),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "50000 100000"}, 1),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "9900000 100000"}, 8),
        # inside a container the cgroup's own folder is the mount's root
        ({"proc/self/cgroup": "0::/docker/123", "sys/fs/cgroup/cpu.max": "400000 100000"}, 4),
        (
            {
                "proc/self/cgroup": "3:memory:/m\n4:cpu,cpuacct:/c\n0::/",
                "sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us": "600000",
                "sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us": "100000",
            },
            6,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            8,
        ),
        ({"proc/self/cgroup": "not a cgroup line"}, 8),
    ],
)
def test_cores_are_the_smaller_of_affinity_and_quota(machine, files, cores):
    for path, text in files.items():
        write(machine, path, text)
    assert probe_cpu(machine).cores == cores


def test_this_machine():
    found = probe_cpu()
    assert 1 <= found.cores <= (os.cpu_count() or 1)
    assert 0 < found.l1d_bytes <= found.l2_bytes
    assert found.name in str(found) and "\n" not in str(found)
    assert facts.probe_cpu() == found
