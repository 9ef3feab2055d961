"""The device under random programs, valid and damaged, with an oracle (see `c/stress.c`).

The program runs each seed twice and judges every completion and every answer. When a seed fails,
`stress SEED 1 x` prints all of its tasks.
"""

import subprocess
from pathlib import Path

import pytest

INCLUDES = [
    "descriptors/include",
    "mailbox/include",
    "ts_firmware/core",
    "ts_firmware/soc",
    "tests/ts_firmware/c",
]
SOURCES = [
    "ts_firmware/core/*.c",
    "ts_firmware/soc/*.c",
    "mailbox/csrc/crc32c.c",
    "tests/ts_firmware/c/*.c",
]
BUILDS = {
    "plain": ["-O2"],
    "sanitized": ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
}
SEEDS = {"plain": 8_000, "sanitized": 2_000}
NIGHTLY_SEEDS = {"plain": 400_000, "sanitized": 40_000}


def sanitizers_work(folder: Path) -> bool:
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }\n", encoding="ascii")
    command = ["cc", *BUILDS["sanitized"], str(probe), "-o", str(folder / "probe")]
    built = subprocess.run(command, capture_output=True, check=False).returncode == 0
    return built and subprocess.run([str(folder / "probe")], check=False).returncode == 0


@pytest.fixture(scope="module")
def stress(root, tmp_path_factory):
    """Return a function that builds the program and gives its path."""
    folder = tmp_path_factory.mktemp("stress")

    def build(name):
        if name == "sanitized" and not sanitizers_work(folder):
            pytest.skip("this compiler has no address and undefined-behaviour sanitizer")
        program = folder / name
        if not program.exists():
            sources = [str(path) for pattern in SOURCES for path in sorted(root.glob(pattern))]
            include = [f"-I{root / path}" for path in INCLUDES]
            flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", *BUILDS[name]]
            command = ["cc", *flags, *include, *sources, "-o", str(program), "-lpthread"]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            assert run.returncode == 0, run.stderr
        return program

    return build


def run_seeds(program, first, count):
    """Run seeds; returns what the program counted, by name."""
    command = [str(program), str(first), str(count)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, (run.stdout + run.stderr)[-4000:]
    counted = {}
    for part in run.stdout.strip().split(", "):
        number, name = part.split(" ", 1)
        counted[name] = int(number)
    return counted


@pytest.mark.parametrize("build", BUILDS)
def test_random_programs(stress, build):
    counted = run_seeds(stress(build), 1, SEEDS[build])
    assert counted["seeds"] == SEEDS[build]
    # The programs do reach what they are meant to reach.
    assert all(counted.values()), counted
    assert counted["completions"] > 50 * counted["seeds"]


@pytest.mark.nightly
@pytest.mark.parametrize("build", BUILDS)
def test_many_random_programs(stress, build):
    run_seeds(stress(build), 1_000_001, NIGHTLY_SEEDS[build])
