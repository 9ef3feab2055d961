"""The code in README.md and docs/ runs, and prints what the page says.

The Python blocks of a page are one program, run from top to bottom in an empty folder. A `text`
block right after a Python block is the output of that block.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
END = "--- end of block ---"
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)|(?:src|href)=\"([^\"#]+)\"")


def blocks(page: Path) -> list[tuple[str, str | None]]:
    text = page.read_text(encoding="utf-8")
    return [(match[1], match[2]) for match in BLOCK.finditer(text)]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_code_of_a_page_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    program = tmp_path / f"{page.stem}.py"
    program.write_text("".join(f"{code}print({END!r})\n" for code, _ in blocks(page)), "utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(f"{END}\n")
    for (code, expected), found in zip(blocks(page), printed, strict=False):
        if expected is not None:
            assert found == expected, f"{page.name}, output of:\n{code}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for match in LINK.finditer(page.read_text(encoding="utf-8")):
        target = match[1] or match[3]
        if target.startswith(("http://", "https://")):
            continue
        path = (page.parent / target).resolve()
        assert path.exists(), f"{page.name} links to {target}"
        if match[2] and path.suffix == ".md":
            assert match[2][1:] in anchors(path), f"{page.name} links to {target}{match[2]}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        if page.name != "README.md":
            assert f"({page.name})" in index, f"docs/README.md does not name {page.name}"
