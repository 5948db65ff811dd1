#!/usr/bin/env python3
"""Names and language (STYLE 1, 12, 19): static functions of one word, comments that begin with who or what, texts "is no <noun>", one struct tag twice."""
import collections
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(os.environ.get("MUSTER_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
PRODUCT = "runtime proto net resolvers collective cluster params training python tools".split()

# A definition: it begins in column 0 with static; its name stands before the first parenthesis.
STATIC = re.compile(r"^static (?!const struct|struct \w+ \w+ =)[^;={(]*?\b(\w+)\(", re.M)
COMMENT = re.compile(r"/\*\*?\s*(.*?)\*/", re.S)
RIDDLE = re.compile(r"(Who|What|Whom|Whose|Of)\b")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
IS_NO = re.compile(r"\b(is|are|was|were) no (?!longer\b|more\b)(\w+)")
# "there is no X" says that something is missing, not what a thing is.
THERE = re.compile(r"\b[Tt]here (is|are|was|were) no\b")
TAG = re.compile(r"^(struct|enum|union) (\w+) \{", re.M)
MAIN = {"main"}


def without_comments(text):
    return COMMENT.sub(lambda found: "\n" * found.group().count("\n"), text)


def literals_of(text):
    """Line and text of each literal; neighbours are one."""
    lines = [line if not line.lstrip().startswith("#include") else "" for line in without_comments(text).splitlines()]
    joined = re.sub(r'"\s*\n\s*"', lambda found: "" + "\x00" * found.group().count("\n"), "\n".join(lines))
    number = 1
    for line in joined.split("\n"):
        for found in LITERAL.finditer(line):
            yield number, found[1].replace("\x00", "")
        number += 1 + line.count("\x00")


def faults_of(text):
    for found in STATIC.finditer(text):
        if "_" not in found[1] and found[1] not in MAIN:
            yield text.count("\n", 0, found.start()) + 1, f"the static function {found[1]} must be named <object>_<verb>, or by a verb with its object"
    for found in COMMENT.finditer(text):
        if riddle := RIDDLE.match(found[1]):
            yield text.count("\n", 0, found.start()) + 1, f"the comment must be a full sentence with its subject first; it begins with {riddle[1]}"
    for number, literal in literals_of(text):
        found = IS_NO.search(THERE.sub("", literal))
        if found:
            yield number, f'the text must say "{found[1]} not a {found[2]}" (or what is missing), got "{found[0]}"'


def duplicate_tags(texts):
    """Tags that two files define."""
    places = collections.defaultdict(set)
    for path, text in texts.items():
        for found in TAG.finditer(text):
            if found[2].startswith("muster_"):
                places[found[2]].add(path)
    return {tag: sorted(paths) for tag, paths in places.items() if len(paths) > 1}


def check_self():
    assert len(list(faults_of("static void finish(int a)\n{\n}\n"))) == 1
    assert not list(faults_of("static void run_finish(int a)\n{\n}\nstatic int finish = 1;\n"))
    assert len(list(faults_of("/* Who comes late waits. */\n"))) == 1
    assert not list(faults_of("/* A late member waits for whom it needs. */\n"))
    assert len(list(faults_of('f("%s is no "\n  "object");\n'))) == 1
    assert not list(faults_of('f("%s is no longer there"); g("there is no file");\n'))
    assert len(duplicate_tags({"a": "struct muster_x {\n", "b": "struct muster_x {\n"})) == 1


def main():
    check_self()
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    wrong = []
    folders = [*PRODUCT, "include", "examples", "tests"]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
             for folder in folders for path in sorted((ROOT / folder).rglob("*.[ch]"))}
    for path, text in texts.items():
        if names and not any(path.startswith(name) for name in names):
            continue
        wrong += [f"{path}:{line}: {fault}" for line, fault in faults_of(text)]
    for tag, paths in duplicate_tags({path: text for path, text in texts.items() if path.split("/")[0] in [*PRODUCT, "include"]}).items():
        wrong.append(f"the tag {tag} must be one thing, it stands in {' and '.join(paths)}")
    print("\n".join(wrong))
    print(f"{len(texts)} files, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
