"""The table holds: every case has a row, and its test passes as the library is and fails with the row's fault."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from cases.common import ROOT
from cases.faults import Replaced, Rewritten
from cases.table import CASES

# Reports of public_reports that a CPU can show.
NUMBERS = {1, 5, 7, 8, 9, 13, 15, 16, 17, 20, 21, 23, 24, 26, 28, 29, 31, 33, 36, 38, 41, 42, 44, 46, 49}


def outcomes(cases, folder, *options):
    """What became of the tests of these cases, in a process of their own: row -> the outcomes of its tests."""
    file = folder / "outcomes.json"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        f"--outcomes={file}",
        *options,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    result = subprocess.run(
        [*command, *(f"tests/cases/{case.test}" for case in cases)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode in (0, 1), (
        result.stdout + result.stderr
    )  # a test that is not there ends with another status
    found = json.loads(file.read_text(encoding="utf-8"))
    return {case.test: sorted({outcome for node, outcome in found.items() if case.covers(node)}) for case in cases}


def prove(cases, folder):
    assert outcomes(cases, folder) == {case.test: ["passed"] for case in cases}
    with_fault = outcomes(cases, folder, "--inject")
    blind = [case.test for case in cases if "failed" not in with_fault[case.test] or "error" in with_fault[case.test]]
    assert blind == [], "these tests do not see their fault"


def test_every_case_has_a_row_and_every_row_a_test_of_its_own():
    assert {case.number for case in CASES} == NUMBERS
    assert [case.number for case in CASES] == sorted(case.number for case in CASES)
    assert len({case.test for case in CASES}) == len({case.fault for case in CASES}) == len(CASES)
    assert all(case.source.startswith("https://github.com/") for case in CASES)


def test_the_tests_see_faults_in_functions(tmp_path):
    prove([case for case in CASES if isinstance(case.fault, Replaced)], tmp_path)


def test_the_tests_see_faults_in_the_native_engine(tmp_path):
    cases = [case for case in CASES if isinstance(case.fault, Rewritten)]
    with ThreadPoolExecutor(2) as builders:
        list(builders.map(lambda case: case.fault.build(), cases))
    prove(cases, tmp_path)
