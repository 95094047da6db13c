"""``import prnn`` costs next to nothing: little time, no torch, no file, no library of ours."""

import json
import statistics
import subprocess
import sys

LIMIT_S = 0.3

TIMED = """
import time, numpy
start = time.perf_counter()
import prnn
print(time.perf_counter() - start)
"""

# Audit events see every open and every library, whoever asks.
WATCHED = """
import json, sys, numpy
written, libraries = [], []
def watch(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & (1 | 2 | 64):  # write, read-write, create
        written.append(str(args[0]))
    elif event == "open" and not str(args[0]).endswith((".py", ".pyc", ".so", ".json", ".pth")):
        written.append(str(args[0]))
    elif event == "ctypes.dlopen":
        libraries.append(str(args[0]))
    elif event in ("os.mkdir", "socket.__new__", "subprocess.Popen"):
        written.append(event)
sys.dont_write_bytecode = True
sys.addaudithook(watch)
import prnn
print(json.dumps([written, libraries, sorted({"torch", "prnn.nn", "prnn.engine"} & set(sys.modules))]))
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_takes_under_the_limit_beyond_numpy():
    run(TIMED)  # byte code is compiled once in the life of an installation
    seconds = [float(run(TIMED)) for _ in range(5)]
    assert statistics.median(seconds) < LIMIT_S, seconds


def test_import_opens_nothing_but_code_and_loads_nothing():
    files, libraries, modules = json.loads(run(WATCHED))
    assert files == []
    assert [name for name in libraries if "prnn" in name] == []
    assert modules == []
