#!/usr/bin/env python3
"""Every folder with sources has a README.md of at most 60 lines that names each of its .c files (STYLE 16), and no file that is gone."""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(os.environ.get("MUSTER_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
PRODUCT = "runtime proto net resolvers collective cluster params training tools".split()
LINES_MAX = 60
WORD = re.compile(r"`?([\w/]+\.[ch])\b")


def faults_of(sources, headers, text):
    """sources, headers: names of the folder's files; text: of its README, or None."""
    if text is None:
        yield "there is no README.md"
        return
    lines = text.count("\n")
    if lines > LINES_MAX:
        yield f"README.md has {lines} lines, at most {LINES_MAX} are allowed"
    named = set(WORD.findall(text))
    for name in sorted(set(sources) - named):
        yield f"README.md does not name {name}"
    for name in sorted(each for each in named - set(sources) - set(headers) if "/" not in each):
        yield f"README.md names {name}, which is not in the folder"


def check_self():
    assert not list(faults_of(["a.c"], ["a.h"], "- `a.c`, `a.h`: x\n"))
    assert list(faults_of(["a.c"], [], None)) == ["there is no README.md"]
    assert len(list(faults_of(["a.c", "b.c"], [], "a.c, gone.c\n"))) == 2
    assert len(list(faults_of(["a.c"], [], "a.c\n" * 61))) == 1


def main():
    check_self()
    folders = sorted({path.parent for top in PRODUCT for path in (ROOT / top).rglob("*.c")})
    wrong = []
    for folder in folders:
        name = folder.relative_to(ROOT).as_posix()
        page = folder / "README.md"
        wrong += [f"{name}: {fault}" for fault in faults_of([path.name for path in folder.glob("*.c")], [path.name for path in folder.glob("*.h")],
                                                            page.read_text(encoding="utf-8") if page.exists() else None)]
    print("\n".join(wrong))
    print(f"{len(folders)} folders, {len(wrong)} faults")
    return 1 if wrong else 0


sys.exit(main())
