"""House rules that no linter knows: floors, names, what a package has to have."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {
    "descriptors": 1,
    "mailbox": 2,
    "ts_firmware": 3,
    "host_driver": 3,
    "fault_injection": 4,
    "runtime": 4,
}
STRANGERS = {("runtime", "ts_firmware")}
"""A runtime sees the device through its driver only."""
LAZY = ("host_driver", "tsemu.ts_firmware.emulator")
"""The one import that does not go down: opening an `emu:` address, in a function (or types)."""
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}
CODE = (".py", ".c", ".h")
SKIPPED = {"build", "dist"}
ALLOWED_INCLUDES = {
    # a folder and the headers that its C files may include, besides those in the folder itself
    "descriptors/include": r"stdint\.h",
    "ts_firmware/core": r"tsemu/(abi|ring)\.h|std(int|bool|def|atomic|arg)\.h|string\.h",
}


def source_files() -> Iterator[Path]:
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = any(part.startswith(".") or part in SKIPPED for part in parts)
        if path.suffix in CODE and not hidden:
            yield path


def package_files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield (module of this project, is not run on import) for each import statement."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    later = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    lazy = {id(node) for block in later for node in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((name, id(node) in lazy) for name in names if name.split(".")[0] == "tsemu")


def violations(package: str, path: Path) -> Iterator[str]:
    for name, lazy in imports(path):
        target = name.split(".")[1]
        above = FLOORS.get(target, 99) >= FLOORS[package] and target != package
        if not above and (package, target) not in STRANGERS:
            continue
        if lazy and package == LAZY[0] and name.startswith(LAZY[1]):
            continue
        yield f"{path} imports {name}"


@pytest.mark.parametrize("package", FLOORS)
def test_imports_only_go_down(package: str) -> None:
    assert [text for path in package_files(package) for text in violations(package, path)] == []


def test_rule_of_imports_notices_each_way_to_break_it(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "import tsemu.runtime.graph\n"
        "from tsemu import host_driver\n"
        "from tsemu.ts_firmware.emulator import Emulator\n"
        "def f():\n"
        "    from tsemu.ts_firmware.emulator import Emulator\n"
        "    from tsemu.descriptors import codes\n",
        "utf-8",
    )
    found = {package: len(list(violations(package, module))) for package in FLOORS}
    assert found == {
        "descriptors": 4,
        "mailbox": 4,
        "ts_firmware": 2,
        "host_driver": 2,  # the lazy one is the exception
        "fault_injection": 1,
        "runtime": 2,
    }


@pytest.mark.parametrize("folder", ALLOWED_INCLUDES)
def test_c_folder_includes_only_what_it_may(folder: str) -> None:
    for path in [*(ROOT / folder).rglob("*.c"), *(ROOT / folder).rglob("*.h")]:
        included = re.findall(
            r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text("utf-8"), re.MULTILINE
        )
        for name in included:
            known = re.fullmatch(ALLOWED_INCLUDES[folder], name)
            assert known or (path.parent / name).is_file(), f"{path.relative_to(ROOT)}: {name}"


def test_file_names_say_what_is_inside() -> None:
    found = [
        path
        for path in source_files()
        if EMPTY_NAMES & {path.stem.lower(), *path.parent.parts[-1:]}
    ]
    assert found == []


def test_tsemu_is_a_namespace() -> None:
    assert not (ROOT / "__init__.py").exists()
    assert not (ROOT / "tsemu").exists()


def test_tests_are_not_a_package() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


@pytest.mark.parametrize("package", FLOORS)
def test_package_is_typed_and_says_what_it_is(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
    assert ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text("utf-8")))


def test_models_and_tests_do_not_sleep() -> None:
    sleeping = re.compile(
        r"\btime\.sleep\(|\bfrom time import .*\bsleep\b|\basyncio\.sleep\((?!0\))"
    )
    found = [
        str(path.relative_to(ROOT))
        for folder in ("tests", *FLOORS)
        for path in (ROOT / folder).rglob("*.py")
        if path != Path(__file__).resolve() and sleeping.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []
