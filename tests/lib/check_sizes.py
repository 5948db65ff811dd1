#!/usr/bin/env python3
"""Sizes of files and functions, columns of pages: reports what deserves a look, fails on what is refused."""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(os.environ.get("MUSTER_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
FOLDERS = "include runtime proto net resolvers collective cluster params training python tools examples tests".split()

FILE_LOOK, FILE_REFUSED = 500, 1000
HEADER_LOOK = 200
FUNCTION_LOOK, FUNCTION_REFUSED = 60, 100
COLUMNS_REFUSED = 120
# Pages whose lines may be longer: those that say what was decided on a day, and those that are still to be shortened.
PAGES_LONG = ("docs/decisions/", "tests/fuzz/", "docs/testing.md", "cluster/", "collective/", "net/", "tools/", "tests/sim/")

NAME = re.compile(r"(\w+)\(")


def functions(lines):
    """Name, first line and length of each body; the layout puts both braces of a function in column 0."""
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            at = start - 1
            while at > 1 and lines[at - 2].strip() and not lines[at - 2].rstrip().endswith((";", "}", "*/")):
                at -= 1
            match = NAME.search(" ".join(lines[at - 1:start]))
            yield (match.group(1) if match else "?"), start, number - start - 1
            start = None


def long_lines(text):
    """Number and columns of each line of a page that is too long.

    What a program has printed (a block without a language, or a console) stays as it is; so does a word that cannot be split."""
    shown = None  # the language of the block; None: outside of blocks
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"\s*```(\w*)", line)
        if fence:
            shown = fence.group(1) if shown is None else None
        elif len(line) > COLUMNS_REFUSED and shown not in ("", "console") and " " in line.strip():
            yield number, len(line)


def check_self():
    """A planted line that is too long is refused, in prose and in code, and nothing else is."""
    long = "x " * COLUMNS_REFUSED
    page = f"short\n{long}\n```\n{long}\n```\n```c\n{long}\n```\n| {long} |\n{'y' * 200}\n```console\n{long}\n```\n"
    assert [number for number, _ in long_lines(page)] == [2, 7, 9], list(long_lines(page))


def pages():
    """The tracked pages; an empty list outside of a git checkout."""
    listing = subprocess.run(["git", "-C", ROOT, "ls-files", "*.md"], capture_output=True, text=True, check=False).stdout
    return [name for name in listing.split("\n") if name and not name.startswith(PAGES_LONG) and (ROOT / name).exists()]


def main():
    check_self()
    look, refused = [], []
    for name in pages():
        for number, columns in long_lines((ROOT / name).read_text(encoding="utf-8")):
            refused.append(f"{name}:{number}: {columns} columns, must be at most {COLUMNS_REFUSED}")
    file_count = function_count = 0
    for path in (p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.[ch]"))):
        relative = path.relative_to(ROOT).as_posix()
        lines = path.read_text().splitlines()
        file_count += 1
        if len(lines) > FILE_REFUSED:
            refused.append(f"{relative}: {len(lines)} lines")
        elif len(lines) > (HEADER_LOOK if path.suffix == ".h" else FILE_LOOK):
            look.append(f"{relative}: {len(lines)} lines")
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS_REFUSED:
                refused.append(f"{relative}:{number}: {len(line)} columns")
        for name, start, length in functions(lines):
            function_count += 1
            if length > FUNCTION_REFUSED:
                refused.append(f"{relative}:{start}: {name} has {length} lines")
            elif length > FUNCTION_LOOK:
                look.append(f"{relative}:{start}: {name} has {length} lines")
    for title, rows in (("worth a look", look), ("refused", refused)):
        if rows:
            print(f"{title}:\n  " + "\n  ".join(rows))
    print(f"{file_count} files, {function_count} functions, {len(look)} to look at, {len(refused)} refused")
    return 1 if refused or file_count == 0 else 0


sys.exit(main())
