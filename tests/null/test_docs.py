"""Documents: their Python blocks run and the paths that they name exist."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
# In code marks or a link: something with a slash, or a file of a known kind.
MARKED = re.compile(r"`([\w./-]+)`")
TOP_LEVEL = ("src/", "docs/", "tests/", "results/", "benchmarks/", ".ci/")


def ids(documents):
    return [each.relative_to(ROOT).as_posix() for each in documents]


WITH_CODE = [each for each in DOCUMENTS if PYTHON_BLOCK.search(each.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("document", WITH_CODE, ids=ids(WITH_CODE))
def test_code_runs_from_top_to_bottom(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRNN_CACHE_DIR", str(tmp_path))
    text = document.read_text(encoding="utf-8")
    names = {"__name__": f"docs_{document.stem}"}
    for block in PYTHON_BLOCK.finditer(text):
        # Blank lines in front keep the line numbers of the document in a traceback.
        padded = "\n" * text[: block.start()].count("\n") + "\n" + block[1]
        exec(compile(padded, str(document), "exec"), names)


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids(DOCUMENTS))
def test_paths_exist(document):
    text = document.read_text(encoding="utf-8")
    missing = [path for path in LINK.findall(text) if not (document.parent / path).exists()]
    missing += [path for path in MARKED.findall(text) if path.startswith(TOP_LEVEL) and not (ROOT / path).exists()]
    assert missing == []


def test_the_readme_names_the_commands_in_order():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    positions = [text.index(command) for command in ("make demo", "make test", "pip install")]
    assert positions == sorted(positions)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        assert set(re.findall(r"^    make (\w+)", document.read_text(encoding="utf-8"), re.MULTILINE)) <= targets


def test_layout_lists_every_room():
    text = (ROOT / "docs/layout.md").read_text(encoding="utf-8")
    package = ROOT / "src/prnn"
    rooms = [each for each in package.iterdir() if each.suffix == ".py" or (each.is_dir() and any(each.glob("*.py")))]
    unlisted = [each.name for each in rooms if f"src/prnn/{each.name}" not in text and not each.name.startswith("__")]
    assert unlisted == []


def test_figures_of_the_readme_are_those_of_the_results():
    summary = runpy.run_path(str(ROOT / "benchmarks/summary.py"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [sentence for sentence in summary["sentences"]() if f"- {sentence}" not in text] == []
