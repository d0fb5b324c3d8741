"""The shape of the tree: what each process consists of, who may know NATS, and how long a module may get."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from services.cli import subject_table
from services.cli.leaders import DECIDERS

ROOT = Path(__file__).parents[2]
DOERS = ("agent", "activator", "cli")
MAX_LINES = 350
MAX_FUNCTION_LINES = 50
DATA = {"declarations"}  # the streams: a table, however long


def modules() -> list[Path]:
    return sorted(path for part in ("services", "shared") for path in (ROOT / part).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module)):
                yield module


def texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Every string literal that is no docstring."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | bare:
            yield node


def test_no_wait_forgets_that_it_was_canceled() -> None:
    """`asyncio.wait_for` of Python 3.11 does, where what it waits for comes in the same moment; `asyncio.timeout` not."""
    assert not [named(path) for path in modules() if "asyncio.wait_for(" in path.read_text()]


@pytest.mark.parametrize("service", DECIDERS)
@pytest.mark.parametrize("file", ["__init__.py", "__main__.py", "service.py", "state.py", "decide.py"])
def test_a_service_that_decides_has_its_files(service: str, file: str) -> None:
    assert (ROOT / "services" / service / file).is_file()


@pytest.mark.parametrize("doer", DOERS)
def test_a_doer_can_be_started(doer: str) -> None:
    assert (ROOT / "services" / doer / "__main__.py").is_file()


def test_every_process_says_what_it_is_in_its_package() -> None:
    for service in (*DECIDERS, *DOERS):
        assert ast.get_docstring(ast.parse((ROOT / "services" / service / "__init__.py").read_text())), service


def test_every_module_says_what_it_is() -> None:
    bare = [named(path) for path in modules() if path.read_text() and not ast.get_docstring(parsed(path))]
    assert bare == []


def test_no_module_is_longer_than_one_idea() -> None:
    lengths = {named(path): len(path.read_text().splitlines()) for path in modules()}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def test_a_function_fits_on_a_screen() -> None:
    long = [
        f"{named(path)}:{node.lineno} {node.name}"
        for path in modules()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name not in DATA
        and (node.end_lineno or node.lineno) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert long == []


def test_only_the_runtime_knows_nats() -> None:
    outside = [
        named(path)
        for path in modules()
        if (ROOT / "shared" / "runtime") not in path.parents
        and any(name.partition(".")[0] == "nats" for name in imports(parsed(path)))
    ]
    assert outside == []


def test_subjects_are_written_in_one_place() -> None:
    elsewhere = [
        f"{named(path)}:{text.lineno} {text.value!r}"
        for path in modules()
        if named(path) != "shared/subjects.py"
        for text in texts(parsed(path))
        if str(text.value).startswith("steer.")
    ]
    assert elsewhere == []


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "common", "manager", "misc"}
    assert [named(path) for path in modules() if drawers & set(path.with_suffix("").parts)] == []


def test_the_table_of_records_in_the_readme_is_current() -> None:
    readme = (ROOT / "README.md").read_text()
    assert subject_table.with_table(readme) == readme, "run python -m services.cli.subject_table"


def test_a_readme_without_its_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="markers"):
        subject_table.with_table("# Steersman\n")
