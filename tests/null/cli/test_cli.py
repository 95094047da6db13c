"""The command line: verbs, words, data, errors and exit codes."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import prnn.cli
from prnn import engine
from prnn.cells import BUILTIN, lstm
from prnn.cli import VERBS, main
from prnn.facts import CpuRates
from prnn.plan import GPU_FAMILIES
from prnn.plan.choose import FAMILIES
from prnn.problem import Problem


def test_verbs_are_the_files_of_the_folder():
    files = {path.stem for path in Path(prnn.cli.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(VERBS) == files


def test_python_m_prnn_is_prnn():
    done = subprocess.run([sys.executable, "-m", "prnn", "plan", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("usage: prnn plan")


def test_help_lists_the_verbs_without_importing_them(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(verb in text for verb in VERBS)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "the following arguments are required: VERB"),
        (["plot"], 2, "invalid choice: 'plot'"),
        (["plan", "lstm"], 2, "the following arguments are required: --hidden"),
        (["plan", "--hidden", "8"], 2, "give one cell: a built-in one (rnn_tanh, "),
        (["plan", "lstm", "--cell", "prnn.cells:gru", "--hidden", "8"], 2, "give one cell"),
        (["plan", "lstn", "--hidden", "8"], 2, "no built-in cell 'lstn'; there are rnn_tanh, rnn_relu, lstm"),
        (["plan", "lstm", "--hidden", "0"], 2, "must be at least 1, got 0"),
        (["plan", "lstm", "--hidden", "8", "--batch", "0"], 2, "must be a whole number of at least 1, got '0'"),
        (["plan", "lstm", "--hidden", "8", "--proj", "8"], 2, "proj_size must be 0 or less than hidden_size 8, got 8"),
        (["plan", "gru", "--hidden", "8", "--proj", "4"], 2, "cannot be projected"),
        (["plan", "lstm", "--hidden", "8", "--device", "cuda"], 2, "invalid choice: 'cuda'"),
        (["plan", "lstm", "--hidden", "8", "--backend", "gpu"], 2, "backend must be 'auto' or one of"),
        (["plan", "--cell", "nowhere:cell", "--hidden", "8"], 2, "no cell at 'nowhere:cell'"),
        (
            ["plan", "lstm", "--hidden", "8", "--dtype", "float16", "--backend", "cpu_inplace"],
            1,
            "cannot run lstm 8 -> 8",
        ),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(capsys, arguments, code, message):
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""


def test_plan_in_words(capsys):
    assert main(["plan", "lstm", "--hidden", "32", "--batch", "8"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line == str(engine.plan(Problem(lstm, 32, 32), 8, 100))


def test_plan_explains_every_candidate(capsys):
    assert main(["plan", "lstm", "--hidden", "32", "--steps", "1", "--explain"]) == 0
    text = capsys.readouterr().out
    assert "chosen: " in text and "weights: " in text
    assert all(family.NAME in text for family in FAMILIES)


@pytest.mark.skipif(not engine.available().library, reason="the native engine is not built")
def test_rates_are_measured_where_asked(capsys):
    assert main(["info", "--measure", "--json"]) == 0
    captured = capsys.readouterr()
    rates = json.loads(captured.out)["cpu_rates"]
    assert set(rates) == {field.name for field in dataclasses.fields(CpuRates)} and min(rates.values()) > 0
    assert captured.err.splitlines()[0].startswith("measuring: reading L1")
    assert main(["info"]) == 0
    assert "cpu_rates" not in capsys.readouterr().out
    arguments = ["plan", "lstm", "--hidden", "64", "--stream", "--measure"]
    assert main([*arguments, "--explain"]) == 0
    text = capsys.readouterr().out
    assert "before the rates were measured" in text and "rates of a core: L1 " in text and "floor: " in text
    assert main([*arguments, "--device", "h200"]) == 2
    assert "--measure is for this machine's CPU" in capsys.readouterr().err


def test_plan_for_a_gpu_that_is_not_there(capsys):
    arguments = ["plan", "lstm", "--hidden", "256", "--batch", "64", "--dtype", "float16", "--device", "h200"]
    assert main([*arguments, "--bidirectional", "--explain"]) == 0
    text = capsys.readouterr().out
    assert re.search("chosen: (cluster|grid)_forward", text) and "copies of the weights: " in text
    assert main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["family"] in {family.NAME for family in GPU_FAMILIES} and data["weights_in"] == "registers"


def test_plan_without_residence(capsys):
    assert main(["plan", "mgu", "--hidden", "256", "--device", "a100", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["family"], data["weights_in"]) == ("launched", "memory")


def test_plan_refuses_what_the_device_cannot_do(capsys):
    command = [
        "plan",
        "lstm",
        "--hidden",
        "8",
        "--dtype",
        "float64",
        "--device",
        "h200",
        "--backend",
        "cluster_forward",
    ]
    assert main(command) != 0
    assert "its products take float16, bfloat16 or float32, the problem is float64" in capsys.readouterr().err
    assert main(["plan", "lstm", "--hidden", "8", "--dtype", "float16"]) != 0
    assert "the CPU computes in float32 or float64" in capsys.readouterr().err


def test_plan_of_narrow_weights(capsys):
    arguments = ["plan", "lstm", "--hidden", "256", "--stream", "--explain", "--weights"]
    assert main([*arguments, "int8"]) == 0
    text = capsys.readouterr().out
    assert "float32 with int8 weights" in text and "weights: 0.75 MiB read a step, kept in " in text
    assert "cpu_inplace" in text and "these are int8; use cpu_panels" in text
    assert main([*arguments, "same"]) == 0
    assert "weights: 2 MiB read a step" in capsys.readouterr().out
    assert main([*arguments, "int8", "--dtype", "float64"]) == 2
    assert "int8 weights are for inference in float32, this is inference in float64" in capsys.readouterr().err
    assert main([*arguments, "int8", "--device", "h200"]) != 0
    assert "int8 weights have kernels on the CPU only" in capsys.readouterr().err


def test_plan_as_data(capsys):
    arguments = ["--hidden", "32", "--input", "5", "--proj", "16", "--dtype", "float64", "--training", "--json"]
    assert main(["plan", "lstm", *arguments]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["problem"] == {
        "cell": "lstm",
        "cell_digest": lstm.digest,
        "input_size": 5,
        "hidden_size": 32,
        "proj_size": 16,
        "bias": True,
        "dtype": "float64",
        "training": True,
        "math": "ieee",
        "weights": "same",
    }
    assert data["family"] in {family.NAME for family in FAMILIES}
    assert set(data["config"]) >= {"isa", "threads"}
    assert data["step_us"] > 0 and data["weights_in"] in ("L1", "L2", "L3", "memory")
    assert any(each["family"] == data["family"] and each["step_us"] == data["step_us"] for each in data["candidates"])


def test_plan_of_a_cell_in_the_current_folder(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import prnn.cells as c\n@c.cell(states=['h'], gates=['n'])\ndef own(n):\n    return c.tanh(n) * 0.5\n"
    )
    # as the installed command has it: the current folder is not on the path
    code = "import sys; sys.path.remove(''); from prnn.cli import main; "
    code += "sys.exit(main(['plan', '--cell', 'mine:own', '--hidden', '8']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("own 8 -> 8")


@pytest.mark.parametrize("name", BUILTIN)
def test_plan_of_every_builtin_cell(capsys, name):
    assert main(["plan", name, "--hidden", "16"]) == 0
    assert capsys.readouterr().out.startswith(name)


def test_info_has_what_a_bug_report_needs(capsys):
    assert main(["info", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {"prnn", "python", "numpy", "torch", "cpu_name", "cpu_isas", "cpu_cores"} <= set(data)
    assert {"native_engine", "isa", "threads", "compiler", "cache"} <= set(data)
    assert main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(data)


def test_info_and_plan_leave_torch_alone():
    code = "import sys; from prnn.cli import main; main(['info']); main(['plan', 'gru', '--hidden', '8']); "
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_bad_setting_is_an_error_and_no_traceback(monkeypatch, capsys):
    engine._default_threads.cache_clear()
    monkeypatch.setenv("PRNN_NUM_THREADS", "many")
    assert main(["info"]) == 1
    assert "prnn info: PRNN_NUM_THREADS must be" in capsys.readouterr().err
