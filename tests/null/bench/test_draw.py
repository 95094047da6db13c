"""Charts of invented rows."""

import pytest

pytest.importorskip("matplotlib")

from prnn.bench.draw import draw, ratios, steps  # noqa: E402
from prnn.errors import PrnnError  # noqa: E402


@pytest.fixture
def rows(invent):
    return [
        invent(cell=cell, hidden=hidden, batch=batch, steps=num_steps, ours_us=hidden * batch / 10)
        for num_steps in (1, 100)
        for cell in ("lstm", "gru")
        for hidden in (64, 1024)
        for batch in (1, 16)
    ]


def test_a_picture_for_each_number_of_threads(tmp_path, rows, invent):
    wrong = invent(checked=False, threads=8)
    written = draw([*rows, invent(threads=2), invent(peers={}), wrong], tmp_path)
    names = ["cpu-1-ratio.png", "cpu-1-step.png", "cpu-2-ratio.png", "cpu-2-step.png"]
    assert [path.name for path in written] == names == sorted(path.name for path in tmp_path.iterdir())
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000 for path in written)


def test_the_heat_map_shows_every_ratio_and_its_peer(rows):
    panels = ratios(rows).axes[:4]
    assert [axes.get_title() for axes in panels[:2]] == [
        "lstm, streaming, one step a call",
        "gru, streaming, one step a call",
    ]
    assert all(len(axes.texts) == 4 and axes.get_xlabel() and axes.get_ylabel() for axes in panels)
    assert panels[0].texts[0].get_text() == f"{140 / 6.4:.2f}\nonnxruntime"


def test_times_have_units_and_a_floor(rows):
    panels = steps(rows).axes
    assert all(axes.get_ylabel() == "time (µs a step)" for axes in panels)
    # ours, the best peer and the floor for each of two batches
    assert len([line for line in panels[1].lines if len(line.get_xdata())]) == 6


def test_the_folder_must_exist(tmp_path, rows):
    with pytest.raises(PrnnError, match="no such folder"):
        draw(rows, tmp_path / "charts")


def test_gpu_rows_have_a_line_for_each_dtype(tmp_path, invent):
    gpu = {"suite": "dense", "steps": 256, "batch": 8}
    rows = [
        invent(**gpu, dtype=dtype, math=math, hidden=hidden, peers={"cudnn_persist_static_small_h": 150.0})
        for dtype, math in (("fp16", ""), ("fp32", "tf32"))
        for hidden in (64, 128)
    ]
    rows.append(invent(**gpu, dtype="fp16", math="", hidden=256, family="torch"))
    panels = ratios(rows).axes[:2]
    assert [axes.get_title() for axes in panels] == [
        "lstm, fp16, forward, 256 steps a call",
        "lstm, fp32 tf32, forward, 256 steps a call",
    ]
    assert [each.get_text() for each in panels[0].texts] == ["1.50\nsmall_h", "1.50\nsmall_h", "not ours"]
    named = [
        invent(suite="networks", network="a network", family=family, dtype="fp16", math="") for family in ("x", "torch")
    ]
    assert [path.name for path in draw([*rows, *named], tmp_path)] == [
        "dense-1-ratio.png",
        "dense-1-step.png",
        "networks-1-networks.png",
    ]
