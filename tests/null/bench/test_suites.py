"""The suite `cpu` and the selection of its rows."""

import pytest

from prnn.bench.suites import SUITES, selector
from prnn.bench.workload import CHECKED_STEPS, Workload, draw


def selected(text):
    return [each for each in SUITES["cpu"].workloads if selector(text)(each)]


def test_cpu_has_90_inference_and_45_training_rows():
    workloads = SUITES["cpu"].workloads
    assert len(set(workloads)) == len(workloads) == 135
    assert len(selected("forward")) == 90
    assert len(selected("training")) == 45 and all(each.steps == 100 for each in selected("training"))
    assert all(each.input == each.hidden for each in workloads)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 135),
        ("lstm", 45),
        ("lstm,H=256,T=1", 3),
        ("lstm,gru,H=64,H=128,B=4,training", 4),
        (" gru , T=1 ", 15),
        ("H=7", 0),
    ],
)
def test_terms_of_one_kind_are_alternatives(text, count):
    assert len(selected(text)) == count


@pytest.mark.parametrize("text", ["lstn", "H=", "H=x", "h=64", "H", "lstm;gru"])
def test_a_wrong_term_is_named(text):
    with pytest.raises(ValueError, match=f"'{text}' selects no rows"):
        selector(text)


def test_a_smoke_run_has_every_cell_and_pass():
    quick = [each for each in SUITES["cpu"].workloads if SUITES["cpu"].quick(each)]
    assert len(quick) == 9


def test_data_are_the_same_in_every_process_and_fit_the_workload():
    workload = Workload("gru", "training", 6, 2, 3, 5)
    data = draw(workload)
    assert data.x.shape == (3, 2, 5) and data.d_y.shape == (3, 2, 6)
    assert [each.shape for each in data.weights[:4]] == [(18, 5), (18, 6), (18,), (18,)]
    assert (data.x == draw(workload).x).all() and (data.weights.w_hh == draw(workload).weights.w_hh).all()
    assert draw(Workload("gru", "forward", 6, 2, 1, 5)).x.shape == (CHECKED_STEPS, 2, 5)
