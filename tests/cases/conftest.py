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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    if not item.config.getoption("--inject", None):
        return (yield)
    (fault,) = {case.fault for case in CASES if case.covers(item.nodeid)}
    with faults.injected(fault):
        return (yield)


@pytest.fixture(autouse=True)
def seed() -> None:
    import torch

    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def cell_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Users' cells are compiled into a folder of this run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRNN_CACHE_DIR", str(tmp_path_factory.mktemp("cells")))
        yield
