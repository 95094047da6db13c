"""Options of the cases: run them with the faults of table.py injected, and write down what became of each test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cases import faults
from cases.table import CASES


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cases")
    group.addoption("--inject", action="store_true", help="run every test with the fault that the table names for it")
    group.addoption("--outcomes", metavar="FILE", help="write a JSON object: test -> outcome")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--outcomes", None)
    if path:
        config.pluginmanager.register(_Outcomes(Path(path)))


class _Outcomes:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.found[report.nodeid] = "error" if report.when != "call" and report.failed else report.outcome

    def pytest_sessionfinish(self) -> None:
        self.path.write_text(json.dumps(self.found), encoding="utf-8")


@pytest.fixture(autouse=True)
def fault(request: pytest.FixtureRequest, seed: None, cell_cache: None) -> Iterator[None]:
    """With --inject, the fault of the test's row. In a fixture, so that a fault which no longer applies is no failed test."""
    if not request.config.getoption("--inject", None):
        yield
        return
    (case,) = [case for case in CASES if case.covers(request.node.nodeid)]
    with faults.injected(case.fault):
        yield


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    """The same numbers every time; one thread, since tests run side by side and those of threads ask for their own."""
    import torch

    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def cell_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Users' cells are compiled into a folder of this run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRNN_CACHE_DIR", str(tmp_path_factory.mktemp("cells")))
        yield
