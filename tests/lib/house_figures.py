#!/usr/bin/env python3
"""Figures of the house, as a table in Markdown: house_figures.py [NAME=TREE …], a column for each tree (default: this one).

A tree that is built in build-asan/ also shows its cycles of files and exported symbols."""
import pathlib
import re
import statistics
import subprocess
import sys

import check_cycles
import check_names

PRODUCT = "runtime proto net resolvers collective cluster params training tools".split()
COMMENT = re.compile(r"/\*.*?\*/", re.S)
ASSERT = re.compile(r"\bMUSTER_ASSERT\(|(?<!\w)assert\(")


def comment_share(texts):
    """Percent of the lines that hold (part of) a comment, of those that are not blank."""
    lines = comments = 0
    for text in texts:
        marked = COMMENT.sub(lambda found: re.sub(r"[^\n]+", "\x01", found.group()), text)
        kept = [line for line in marked.splitlines() if line.strip()]
        lines += len(kept)
        comments += sum("\x01" in line for line in kept)
    return 100 * comments / lines


def cycles_in(tree):
    check_cycles.ROOT, check_cycles.BUILD = tree, tree / "build-asan"
    found = check_cycles.objects()
    if not found:
        return "not built", "not built"
    cycles = check_cycles.cycles_of(check_cycles.edges_of(*check_cycles.symbols(found)))
    in_cycles = sum(map(len, cycles))
    return f"{in_cycles} of {len(found)} ({100 * in_cycles / len(found):.1f} %)", len(cycles[0]) if cycles else 0


def exported_in(tree):
    library = tree / "build-asan/lib/libmuster.so"
    if not library.exists():
        return "not built"
    output = subprocess.run(["nm", "-D", "-g", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return sum(line.split()[-1].startswith("muster_") for line in output.splitlines())


def figures_of(tree):
    sources = [path for top in PRODUCT for path in sorted((tree / top).rglob("*.[ch]"))]
    code = {path: path.read_text(encoding="utf-8") for path in sources}
    bodies = [text for path, text in code.items() if path.suffix == ".c"]
    folders = {}
    for path in sources:
        folders[path.parent] = folders.get(path.parent, 0) + (path.suffix == ".c")
    faults = [fault for path, text in code.items() for _, fault in check_names.faults_of(text)]
    in_cycles, largest = cycles_in(tree)
    return {
        "folders with sources": len(folders),
        "sources in the largest folder": max(folders.values()),
        "lines of a .c file, median": int(statistics.median(text.count("\n") for text in bodies)),
        "files in call cycles": in_cycles,
        "files in the largest cycle": largest,
        "comment lines in .c files": f"{comment_share(bodies):.1f} %",
        "assertions": sum(len(ASSERT.findall(text)) for text in code.values()),
        "static functions named by one word": sum(fault.startswith("the static function") for fault in faults),
        "comments that begin with who or what": sum(fault.startswith("the comment") for fault in faults),
        'texts "is no <noun>"': sum(fault.startswith("the text") for fault in faults),
        "public headers": len(list((tree / "include/muster").glob("*.h"))),
        "exported symbols": exported_in(tree),
        "lines of tests (C)": sum(path.read_text(encoding="utf-8").count("\n") for path in (tree / "tests").rglob("*.[ch]")),
    }


def main():
    named = dict(word.split("=", 1) for word in sys.argv[1:]) or {"now": pathlib.Path(__file__).resolve().parents[2].as_posix()}
    columns = {name: figures_of(pathlib.Path(tree)) for name, tree in named.items()}
    print("| | " + " | ".join(columns) + " |\n|" + " --- |" * (len(columns) + 1))
    for row in next(iter(columns.values())):
        print(f"| {row} | " + " | ".join(str(column[row]) for column in columns.values()) + " |")


if __name__ == "__main__":
    main()
