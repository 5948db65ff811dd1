#!/usr/bin/env python3
"""What pages name is there: their links within the tree, and sources that they name with a folder."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(os.environ.get("MUSTER_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
DATED = "docs/decisions/"  # pages that say what was decided on a day; their sources may have moved
BLOCK = re.compile(r"^\s*```.*?^\s*```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")
SOURCE = re.compile(r"`((?:collective|cluster|examples|include|muster|net|proto|resolvers|runtime|tests|tools|training)/[\w/.-]+\.(?:c|h|proto|py))`")


def missing(root, name):
    """Each link and source of a page that is not there."""
    text = BLOCK.sub("", (root / name).read_text(encoding="utf-8"))
    links = [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]
    yield from (link for link in links if not ((root / name).parent / link).exists())
    if not name.startswith(DATED):
        yield from (source for source in SOURCE.findall(text) if not any((root / base / source).exists() for base in (".", "include")))


def check_self():
    """Of a planted page what is not there is found, and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path in ("net/stream.c", "include/muster/rpc.h"):
            (root / path).parent.mkdir(parents=True)
            (root / path).write_text("", encoding="utf-8")
        (root / "page.md").write_text("[a](net/stream.c) [b](net/gone.c) [c](https://example.org/x) [d](net/stream.c#l) [e](#f) [g](lost.md#h)\n"
                                      "`net/stream.c` `net/lost.c` `stream.c` `net/*.c` `muster/rpc.h` `muster/lost.h`\n```\n[h](nowhere.md)\n```\n", encoding="utf-8")
        found = list(missing(root, "page.md"))
    assert found == ["net/gone.c", "lost.md", "net/lost.c", "muster/lost.h"], found


def main():
    check_self()
    listing = subprocess.run(["git", "-C", ROOT, "ls-files", "*.md"], capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        print("skipped: this is not a git checkout, so that nothing is tracked")
        return 77
    pages = sorted({name for name in listing.stdout.splitlines() if (ROOT / name).exists()})
    faults = [f"{name}: {what} is not there" for name in pages for what in missing(ROOT, name)]
    print("\n".join(faults) if faults else f"what {len(pages)} pages name is there")
    return len(faults) > 0 or not pages


sys.exit(main())
