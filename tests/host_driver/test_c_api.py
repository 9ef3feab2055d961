"""The C library: its unit tests with a scripted device, and a C program against a real one."""

import contextlib
import os
import shutil
import subprocess
import sys

import pytest

from tsemu.host_driver import cflags

LIMIT_S = 240.0
"""Longest that anything may take before a test gives up; nothing is measured with it."""
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
PLAIN = ["-std=c11", "-O1", "-g", "-D_GNU_SOURCE"]
STRICT = [*PLAIN, "-Wall", "-Wextra", "-Werror", "-Wshadow"]
UNIT_TESTS = [
    "test_slots",
    "test_edges",
    "test_waits",
    "test_refusals",
    "test_arguments",
    "test_programs",
    "test_threads",
    "test_random",
]
INCLUDES = [
    "descriptors/include",
    "mailbox/include",
    "host_driver/include",
    "host_driver/csrc",
    "ts_firmware/core",
    "ts_firmware/soc",
]
NEEDS_DEVICE = {"test_random"}


def compiler():
    found = shutil.which(os.environ.get("CC", "cc"))
    if not found:
        pytest.skip("needs a C compiler")
    return found


def run(*command, env=None):
    """Run to the end; the output is part of the failure when there is one."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=env,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_objects(root, folder, sources, flags):
    """Compile with sanitizers, one object per source."""
    folder.mkdir()
    includes = [f"-I{root / path}" for path in INCLUDES]
    objects = []
    for source in sources:
        made = folder / f"{source.parent.name}-{source.stem}.o"
        run(compiler(), *flags, *SANITIZE, *includes, "-c", source, "-o", made)
        objects.append(made)
    return objects


@pytest.fixture(scope="module")
def driver_objects(root, tmp_path_factory):
    sources = [*(root / "mailbox/csrc").glob("*.c"), *(root / "host_driver/csrc").glob("*.c")]
    return build_objects(root, tmp_path_factory.mktemp("driver") / "o", sorted(sources), STRICT)


@pytest.fixture(scope="module")
def device_objects(root, tmp_path_factory):
    sources = [*(root / "ts_firmware/core").glob("*.c"), *(root / "ts_firmware/soc").glob("*.c")]
    # Its own tests are strict about it.
    return build_objects(root, tmp_path_factory.mktemp("device") / "o", sorted(sources), PLAIN)


@pytest.mark.slow
@pytest.mark.parametrize("name", UNIT_TESTS)
def test_unit(name, root, tmp_path, driver_objects, request):
    objects = [*driver_objects]
    if name in NEEDS_DEVICE:
        objects += request.getfixturevalue("device_objects")
    includes = [f"-I{root / path}" for path in INCLUDES]
    source, program = root / "tests/host_driver/c" / f"{name}.c", tmp_path / name
    run(
        *(compiler(), *STRICT, *SANITIZE, *includes),
        *(source, *objects, "-o", program, "-pthread"),
    )
    output = run(program, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1"})
    assert output.count("ok ") == output.count("\n") > 0


def test_all_unit_tests_are_run(root):
    found = {path.stem for path in (root / "tests/host_driver/c").glob("test_*.c")}
    assert found == set(UNIT_TESTS)


def test_header_is_plain_c_and_cpp(tmp_path):
    """A user's compiler may be stricter than ours, or a C++ one."""
    source = tmp_path / "user.c"
    source.write_text("#include <tsemu.h>\nint main(void) { return 0; }\n")
    pedantic = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    run(
        compiler(), "-std=c11", *pedantic, *cflags.cflags(), "-c", source, "-o", tmp_path / "user.o"
    )
    cpp = shutil.which("c++")
    if cpp:
        run(cpp, "-x", "c++", "-std=c++17", *cflags.cflags(), "-fsyntax-only", source)


@pytest.fixture
def diamond(root, tmp_path):
    """The example, built as its user builds it."""
    program = tmp_path / "diamond"
    source = root / "examples/c/diamond.c"
    assert len(source.read_text().splitlines()) <= 40
    run(compiler(), *cflags.cflags(), source, "-o", program, *cflags.libs())
    return program


@contextlib.contextmanager
def device(path):
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tsemu.ts_firmware.cli", "run", "--soc", "edge-2"),
            *("--set", "scheduler.profile=ideal", "--listen", str(path)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert str(path) in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_diamond(diamond, short_dir):
    path = short_dir / "ts.sock"
    with device(path):
        first = run(diamond, f"unix:{path}").splitlines()
        second = run(diamond, f"unix:{path}").splitlines()
    assert len(first) == len(second) == 4
    starts = [int(line.split(" to ")[0].rpartition(" ")[2]) for line in first]
    ends = [int(line.split(" to ")[1].split()[0]) for line in first]
    assert starts[1] == starts[2] == ends[0] == starts[0] + ends[0] - starts[0]
    assert starts[3] == max(ends[1], ends[2])
    cores = [line.split()[3] for line in first]
    assert cores[1] != cores[2]


def test_diamond_without_a_device(diamond, short_dir):
    for address, words in (
        (f"unix:{short_dir / 'none.sock'}", "tsemu run"),
        ("emu:edge-2", "unix:PATH"),
        (f"unix:{'x' * 200}", "shorter"),
    ):
        done = subprocess.run(
            [str(diamond), address], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 1
        assert words in done.stderr
