"""`prnn bench cpu` from end to end, on two small rows."""

import json

from prnn.bench.rows import KEYS
from prnn.cli import main


def test_two_rows(tmp_path, capsys):
    path = tmp_path / "rows.json"
    arguments = ["--rows", "gru,forward", "--quick", "--seconds", "0.05", "--json", str(path), "--draw", str(tmp_path)]
    assert main(["bench", "cpu", *arguments]) == 0
    captured = capsys.readouterr()
    step, sequence = json.loads(path.read_text())
    assert captured.out.splitlines()[1].split()[:5] == ["gru", "forward", "64", "1", "1"]
    assert "[2/2] gru forward H=64 B=1 T=100: " in captured.err
    for row in (step, sequence):
        assert set(row) == KEYS
        assert row["checked"] is True and 0 < row["max_error"] < 1e-5
        assert {"torch.nn", "numpy"} <= set(row["peers"])
        assert row["peers"][row["best_peer"]] / row["ours_us"] == row["ratio"]
        assert row["ours_spread"][0] <= row["ours_us"] <= row["ours_spread"][1]
        assert row["floor_us"] > 0 and row["floor_by"] in ("bytes", "arithmetic")
    assert (tmp_path / "cpu-1-ratio.png").exists() and (tmp_path / "cpu-1-step.png").exists()


def test_a_wrong_command_line_says_what_is_wrong(capsys):
    assert main(["bench", "cpu", "--rows", "lstn"]) == 2
    assert "'lstn' selects no rows" in capsys.readouterr().err
    assert main(["bench", "cpu", "--rows", "H=7"]) == 2
    assert "no row of cpu matches" in capsys.readouterr().err
    assert main(["bench", "gpu"]) == 2
    assert main(["bench", "cpu", "--threads", "0"]) == 2
    assert main(["bench", "cpu", "--seconds", "nan"]) == 2
