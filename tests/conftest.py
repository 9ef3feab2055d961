"""What all tests share: the installed programs, short socket paths, repeatable random tests."""

import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# No test depends on wall time, and the same run finds the same failures.
REPEATABLE = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
}
hypothesis.settings.register_profile("default", **REPEATABLE)
hypothesis.settings.register_profile(
    "nightly", deadline=None, max_examples=5000, suppress_health_check=[*hypothesis.HealthCheck]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="also run the tests marked nightly")


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("nightly" if config.getoption("nightly") else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("nightly"):
        return
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.skip(reason="a long run: give --nightly"))


@pytest.fixture(scope="session")
def root() -> Path:
    """Root of the source tree."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def programs() -> Path:
    """Folder of the installed programs `tsemu` and `tsctl`."""
    return Path(sysconfig.get_path("scripts"))


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A private folder whose path leaves room for a socket's name (107 bytes in all)."""
    with tempfile.TemporaryDirectory(prefix="tsemu-") as path:
        yield Path(path)
