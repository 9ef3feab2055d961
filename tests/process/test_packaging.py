"""sdist, wheel from the sdist, install, and a run with the source tree out of reach."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
DIAMOND = "4\n0 10 0\n1 20 1 0\n2 30 1 0\n3 10 2 1 2\n"


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "TSEMU"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sdist(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    # setuptools writes its egg-info into the source tree; everything else goes to `out`.
    run(sys.executable, "-m", "build", "--sdist", "--outdir", out, root, cwd=out)
    (archive,) = out.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(out / "tree", filter="data")
    (tree,) = (out / "tree").iterdir()
    run(sys.executable, "-m", "build", "--wheel", "--outdir", out, tree, cwd=out)
    shutil.rmtree(out / "tree")
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of a fresh virtual environment that holds the wheel."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=True)
    pip = [home / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run(*pip, wheel, cwd=home)
    return home / "bin"


def test_sdist_holds_what_a_developer_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {"LICENSE", "README.md", "dev.py", ".ci/run", "setup.py", "tests/conftest.py"}
    assert expected <= names
    assert [name for name in names if name.endswith((".so", ".o", ".pyc"))] == []


def test_wheel_holds_everything_that_the_packages_need(wheel: Path, root: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = ("descriptors", "mailbox", "ts_firmware", "host_driver", "runtime", "fault_injection")
    kinds = (".py", ".pyi", ".typed", ".toml", ".c", ".h")
    for folder in folders:
        for path in (root / folder).rglob("*"):
            if path.suffix in kinds or path.name == "py.typed":
                assert f"tsemu/{path.relative_to(root)}" in names
    assert "tsemu/host_driver/libtsemu.so" in names
    assert "tsemu/__init__.py" not in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["lenient", "strict"])
def test_editable_installation_works(sdist: Path, mode: str, short_dir: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(short_dir, filter="data")
    (tree,) = (path for path in short_dir.iterdir() if path.is_dir())
    venv.create(short_dir / "venv", with_pip=True)
    python = short_dir / "venv" / "bin" / "python"
    option = f"editable_mode={mode}"
    run(python, "-m", "pip", "install", "-q", "-e", tree, "--config-settings", option, cwd=tree)
    graph = short_dir / "diamond.stg"
    graph.write_text(DIAMOND, encoding="utf-8")
    report = json.loads(run(python.parent / "tsctl", "run", graph, "--json", cwd=short_dir))
    assert report["tasks"] == 4
    names = "tsemu.descriptors, tsemu.mailbox, tsemu.host_driver, tsemu.ts_firmware, tsemu.runtime"
    where = run(python, "-c", f"import {names}; print(tsemu.mailbox.__file__)", cwd=short_dir)
    assert where.startswith(str(tree))


def test_installed_device_and_tool_run_in_an_empty_folder(installed: Path, short_dir: Path) -> None:
    graph = short_dir / "diamond.stg"
    graph.write_text(DIAMOND, encoding="utf-8")
    address = f"unix:{short_dir / 'device.sock'}"
    embedded = json.loads(run(installed / "tsctl", "run", graph.name, "--json", cwd=short_dir))
    with subprocess.Popen(
        [str(installed / "tsemu"), "run", "--listen", "device.sock"],
        cwd=short_dir,
        stdout=subprocess.PIPE,
        text=True,
    ) as device:
        try:
            assert device.stdout is not None
            assert "device.sock" in device.stdout.readline()
            tool = [installed / "tsctl", "run", graph.name, "--json", "--device", address]
            remote = json.loads(run(*tool, cwd=short_dir))
        finally:
            device.send_signal(signal.SIGTERM)
    assert device.returncode == 0
    assert not (short_dir / "device.sock").exists()
    assert remote["tasks"] == embedded["tasks"] == 4
    assert remote["makespan_ps"] == embedded["makespan_ps"]


def test_every_module_imports_from_the_installed_package(installed: Path, short_dir: Path) -> None:
    program = (
        "import importlib, pathlib, pkgutil\n"
        "import tsemu\n"
        "names = [m.name for m in pkgutil.walk_packages(tsemu.__path__, 'tsemu.')]\n"
        "for name in names:\n"
        "    if name != 'tsemu.host_driver.libtsemu':  # a library, though its name ends in .so\n"
        "        module = importlib.import_module(name)\n"
        "        assert 'site-packages' in module.__file__, module.__file__\n"
        "print(len(names))\n"
    )
    count = int(run(installed / "python", "-c", program, cwd=short_dir))
    assert count > 20


def test_c_program_builds_with_the_installed_header(installed: Path, short_dir: Path) -> None:
    source = short_dir / "program.c"
    source.write_text(
        "#include <stdio.h>\n#include <tsemu.h>\n"
        "int main(void)\n{\n    tsemu_context *context;\n"
        '    int code = tsemu_open("unix:nobody.sock", "c", NULL, &context);\n'
        "    puts(tsemu_last_error()->field);\n"
        "    return code == TSEMU_E_ADDRESS ? 0 : 1;\n}\n",
        encoding="utf-8",
    )
    flags = run(installed / "python", "-m", "tsemu.host_driver.cflags", cwd=short_dir).split()
    run(
        "cc",
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        source,
        "-o",
        "program",
        *flags,
        cwd=short_dir,
    )
    run("./program", cwd=short_dir)
