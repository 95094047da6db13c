"""Which cache keeps the weights."""

import pytest

from prnn.facts import CpuFacts
from prnn.kernels.budget import home, share_in_l3

FACTS = CpuFacts("test", ("x86-64-v3",), 4, 32 << 10, 512 << 10, 32 << 20)


@pytest.mark.parametrize(
    ("num_bytes", "threads", "expected"),
    [
        (0, 1, "L1"),
        (24 << 10, 1, "L1"),
        ((24 << 10) + 1, 1, "L2"),
        (48 << 10, 2, "L1"),
        (384 << 10, 1, "L2"),
        (385 << 10, 1, "L3"),
        (768 << 10, 2, "L2"),
        ((16 << 20) - 1, 1, "L3"),
        (16 << 20, 1, "memory"),
        (16 << 20, 4, "memory"),  # the third level is shared: more threads do not make it larger
    ],
)
def test_a_slice_fits_a_private_cache_and_the_whole_the_shared_one(num_bytes, threads, expected):
    assert home(num_bytes, threads, FACTS) == expected


def test_a_shared_cache_loses_what_goes_in_a_circle_little_by_little():
    assert [share_in_l3(num_bytes << 20, FACTS) for num_bytes in (1, 8, 12, 16, 24, 33)] == [1, 1, 0.75, 0.5, 0, 0]


def test_without_a_third_level_what_overflows_the_second_is_in_memory():
    facts = CpuFacts("test", (), 1, 32 << 10, 512 << 10, 0)
    assert home(1 << 20, 1, facts) == "memory"
