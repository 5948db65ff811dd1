#!/usr/bin/env python3
"""The table of known variables (training/variable_names.c) against the names that the source reads, and those that users are told of."""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(os.environ.get("MUSTER_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
TABLE = "training/variable_names.c"
PRODUCT = "runtime proto net resolvers collective cluster params training python tools examples".split()
OF_TESTS = {"MUSTER_BINARY_DIR", "MUSTER_SOURCE_DIR", "MUSTER_STRANGERS"}
OF_PARTS = {"MUSTER_BENCH_JOIN_FILE", "MUSTER_BENCH_RECOVER_FILE"}  # one process of a command sets it for another
# A whole literal is the name of a variable: errors and generated code have them within longer texts.
NAME = re.compile(r"""["'](MUSTER_[A-Z0-9_]*[A-Z0-9])["']""")
OPTION = re.compile(r'\.variable = "(MUSTER_\w+)"')  # `muster help options` prints it
WORD = re.compile(r"\bMUSTER_[A-Z0-9_]*[A-Z0-9]\b")


def texts(folders, suffixes):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes:
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def faults():
    rows = NAME.findall((ROOT / TABLE).read_text(encoding="utf-8").split("names[] = {")[1].split("};")[0])
    read, told = {}, set(OF_TESTS | OF_PARTS)
    for path, text in texts(PRODUCT, {".c", ".h", ".py"}):
        if path != TABLE:
            read.update((name, path) for name in NAME.findall(text))
        told.update(OPTION.findall(text))
    for _, text in texts(["docs"], {".md"}):
        told.update(WORD.findall(text))
    if rows != sorted(set(rows)):
        yield f"{TABLE}: the names must be sorted, each once"
    for name in sorted(set(read) - set(rows)):
        yield f"{read[name]}: reads {name}, which {TABLE} must name too: it would be told as misspelt"
    for name in sorted(set(rows) - set(read) - OF_TESTS):
        yield f"{TABLE}: {name} must be read somewhere in {' '.join(PRODUCT)}; remove it"
    for name in sorted(set(rows) - told):
        yield f"{TABLE}: {name} must stand on a page of docs or in the table of an option; tell users what it does"


if __name__ == "__main__":
    found = list(faults())
    for fault in found:
        print(fault)
    print(f"{len(found)} faults in the table of variables")
    sys.exit(bool(found))
