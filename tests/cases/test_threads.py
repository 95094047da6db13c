"""Threads: a child after a fork works (41), and so does any number of them on any number of cores (42)."""

import os
import sys

import pytest

from cases.common import python

FORK = """
import os, signal, sys, time
import torch, prnn

LIMIT_S = 10
prnn.set_num_threads(2)
x = torch.ones(20, 4, 2)

def call(layer, backward):
    layer.zero_grad()  # to add to a gradient torch would start threads of its own, which no child survives
    y = layer(x)[0]
    if backward:
        y.sum().backward()
    return y.detach()

def fork(layer, wanted):
    children = []
    for i in range(5):
        child = os.fork()
        if child == 0:
            y = call(layer if i % 2 == 0 else type(layer)(2, layer.hidden_size), True)
            os._exit(0 if i % 2 or wanted is None or torch.equal(y, wanted) else 3)
        children.append(child)
    end, status = time.monotonic() + LIMIT_S, {}
    while len(status) < len(children) and time.monotonic() < end:
        for child in set(children) - set(status):
            done, code = os.waitpid(child, os.WNOHANG)
            if done:
                status[child] = code
        time.sleep(0.01)
    for child in set(children) - set(status):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return [status.get(child, "hangs") for child in children]

for used in ("no", "forward", "backward"):  # what the parent did before
    for make, hidden in ((prnn.nn.LSTM, 6), (prnn.nn.LSTM, 300), (prnn.nn.GRU, 300)):
        layer = make(2, hidden)
        wanted = None if used == "no" else call(layer, used == "backward")
        found = fork(layer, wanted)
        assert found == [0] * 5, (used, make.__name__, hidden, found)
        if wanted is not None:
            assert torch.equal(call(layer, True), wanted)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_works_whatever_its_parent_did():
    python(FORK)


WORKERS = """
import torch, prnn

class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.layer = prnn.nn.GRU(3, 200)
    def __len__(self):
        return 4
    def __getitem__(self, i):
        with torch.no_grad():
            return self.layer(torch.full((6, 3), float(i)))[1]

if __name__ == "__main__":
    rows = Rows()
    here = torch.stack([rows[i] for i in range(4)])
    for method in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(rows, batch_size=2, num_workers=1, multiprocessing_context=method, timeout=60)
        assert torch.equal(torch.cat(list(loader)), here), method
"""


def test_a_worker_that_loads_data_runs_a_layer(tmp_path):
    script = tmp_path / "workers.py"  # a spawned worker imports it
    script.write_text(WORKERS, encoding="utf-8")
    python(f"import subprocess, sys\nsubprocess.run([sys.executable, {str(script)!r}], check=True)")


THREADS = """
import os
import torch, prnn

layer, reference = prnn.nn.LSTM(24, 200), torch.nn.LSTM(24, 200, dtype=torch.float64)
reference.load_state_dict(layer.state_dict())

def check(steps, batch, counts):
    x = torch.randn(steps, batch, 24)
    wanted = reference(x.double())[0]
    gradients = torch.autograd.grad(wanted.sum(), reference.parameters())
    for count in counts:
        prnn.set_num_threads(count)
        y = layer(x)[0]
        assert torch.allclose(y.double(), wanted, rtol=0, atol=1e-5), (batch, count)
        for mine, theirs in zip(torch.autograd.grad(y.sum(), layer.parameters()), gradients):
            assert (mine - theirs).abs().max() <= 1e-4 * max(1, theirs.abs().max()), (batch, count)

for cores in (len(os.sched_getaffinity(0)), 1):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    for batch in (1, 5, 40):
        check(8, batch, (1, 2, 3, 5))
    check(2, 3, (17, 400))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind a process to cores")
def test_more_threads_than_cores_give_the_same_numbers():
    python(THREADS)


LIMITED = """
import resource
import numpy as np
import prnn

rng = np.random.default_rng(0)
weights = prnn.LayerWeights(*(rng.standard_normal((4 * 300, n), dtype=np.float32) / 20 for n in (64, 300)))
x = rng.standard_normal((6, 16, 64), dtype=np.float32)
prnn.set_num_threads(1)
wanted, _ = prnn.run(prnn.cells.lstm, x, weights)
for mebibytes in (6, 60):  # a thread's stack takes 8
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + mebibytes * 2**20, resource.getrlimit(resource.RLIMIT_AS)[1]))
    prnn.set_num_threads(100)
    y, _ = prnn.run(prnn.cells.lstm, x, weights)
    assert np.abs(y - wanted).max() < 1e-5
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_system_that_gives_no_more_threads_gets_the_work_done():
    python(LIMITED)


DEFAULT = """
import os, sys
from prnn import engine

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
print(engine.num_threads(), len(os.sched_getaffinity(0)))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind a process to cores")
@pytest.mark.parametrize("cores", [1, 2])
def test_the_default_is_what_the_process_may_use(cores):
    threads, there = map(int, python(DEFAULT, str(cores), PRNN_NUM_THREADS=None).split())
    assert 1 <= threads <= there
