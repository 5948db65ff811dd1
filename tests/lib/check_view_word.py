#!/usr/bin/env python3
"""What users read calls the number of a membership "view": an epoch is a pass over the data.

Looked at: string literals of product sources, comments of public headers, and the pages. Names of fields in backticks may stay."""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(os.environ.get("MUSTER_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
SOURCES = "runtime proto net resolvers collective cluster params training tools examples include python".split()
DATED = "docs/decisions/"  # pages that say what was decided on a day
# Keys of wire formats and of the summary, which others read by these names.
ALLOWED = {
    "tools/run/report/activity.c": {"epoch"},
    "tools/run/report/events.c": {"epoch"},
    "tools/run/report/recovery.c": {"epoch"},
    "tools/run/report/report.c": {"epoch"},
    "tools/run/report/summary.c": {"epochs"},
    "tools/params/inspect_json.c": {"map_epoch"},
    "training/report.c": {'\\"epoch\\":'},
    "docs/protocol.md": {'"epoch":'},
}
# Here an epoch is what it is to users: a pass over the data.
OF_DATA = ("docs/data.md", "docs/from-torchft.md", "docs/python-reference.md", "include/muster/dataset.h", "python/dataset.c",
           "python/muster/data.py", "training/data/")
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
WORD = re.compile(r"\bepochs?\b", re.IGNORECASE)
ANYWHERE = re.compile("epoch", re.IGNORECASE)


def without_comments(text):
    return COMMENT.sub(lambda match: "\n" * match.group().count("\n"), text)


def allowed_out(path, text):
    for words in ALLOWED.get(path, ()):
        text = text.replace(words, "")
    return text


def literals(path, text):
    """Line number and text of each string literal in which the word stands."""
    for number, line in enumerate(without_comments(text).splitlines(), 1):
        if line.lstrip().startswith("#include"):
            continue
        for literal in LITERAL.findall(line):
            if literal.strip('"') not in ALLOWED.get(path, ()) and ANYWHERE.search(allowed_out(path, literal)):
                yield number, literal


def comments(text):
    for match in COMMENT.finditer(text):
        first = text.count("\n", 0, match.start()) + 1
        for offset, line in enumerate(match.group().splitlines()):
            if WORD.search(line):
                yield first + offset, line.strip()


def prose(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        if WORD.search(allowed_out(path, re.sub(r"`[^`]*`", "", line))) and "pass over" not in line:
            yield number, line.strip()[:100]


def findings(path, text):
    if path.startswith(OF_DATA):
        return []
    if path.endswith(".md"):
        return list(prose(path, text))
    found = list(literals(path, text)) if not path.endswith(".py") else list(literals(path, text.replace("'", '"')))
    return found + (list(comments(text)) if path.startswith("include/") else [])


def pages():
    yield from ROOT.glob("*.md")
    yield from (ROOT / "docs").rglob("*.md")
    for folder in SOURCES:
        yield from (ROOT / folder).glob("**/*.md")


def sources():
    for folder in SOURCES:
        for ending in ("*.c", "*.h", "*.py"):
            yield from (ROOT / folder).rglob(ending)


def main():
    bad = files = 0
    for file in sorted({*pages(), *sources()}):
        path = file.relative_to(ROOT).as_posix()
        if path.startswith(DATED):
            continue
        files += 1
        for number, text in findings(path, file.read_text(encoding="utf-8")):
            print(f"{path}:{number}: say view, not epoch: {text}")
            bad += 1
    print(f"{files} files, {bad} findings")
    return 1 if bad or files < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
