#!/usr/bin/env python3
"""Every entry of ctest has a TIMEOUT and runs below guard.py; every script enters the guard first, and skips only by needs.py or guard.sh."""
import ast
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import needs

LIB = pathlib.Path(__file__).resolve().parent
SCRIPTS = LIB.parent / "integration"
TIMEOUT_MAX_S = 600
OWN_SKIP = re.compile(r"^\s*exit 77|\bexit 77;|sys\.exit\((77|SKIP\w*)\)|return (77|SKIP\w*)\b", re.M)


def faults_of_entries(entries):
    """entries: the tests of `ctest --show-only=json-v1`."""
    for entry in entries:
        timeout = {each["name"]: each["value"] for each in entry["properties"]}.get("TIMEOUT")
        if timeout is None:
            yield f"{entry['name']} has no TIMEOUT: add it by muster_test (tests/CMakeLists.txt)"
        elif timeout > TIMEOUT_MAX_S:
            yield f"{entry['name']}: its TIMEOUT must be at most {TIMEOUT_MAX_S} s, got {timeout:.0f} s; make several tests of it"
        if not any(word.endswith("/tests/lib/guard.py") for word in entry.get("command", [])):
            yield f"{entry['name']} does not run below tests/lib/guard.py: add it by muster_test (tests/CMakeLists.txt)"


def cases_of(text):
    """Names of the classes that unittest runs."""
    classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}

    def ancestors(name):
        yield name
        for base in (ast.unparse(base) for base in classes[name].bases) if name in classes else ():
            yield from ancestors(base)

    def has_cases(name):
        return any(isinstance(node, ast.FunctionDef) and node.name.startswith("test") for each in ancestors(name) if each in classes
                   for node in classes[each].body)
    return {name for name in classes if "unittest.TestCase" in ancestors(name) and has_cases(name)}


def faults_of_script(name, text):
    line = "guard.enter()" if name.endswith(".py") else '. "$(dirname "$0")/../lib/guard.sh"'
    if line not in text:
        yield f"{name} does not start with the guard, which ends all that it starts: add the line '{line}' before anything is started"
    if found := re.search(r"^# Entries of ctest: (.*)$", text, re.M):
        if missing := sorted(cases_of(text) ^ set(found[1].split())):
            yield f"{name}: its line 'Entries of ctest' must name every class with cases and nothing else; it differs in {', '.join(missing)}"
    if found := OWN_SKIP.search(text):
        yield f"{name} has a skip of its own ({found[0].strip()}): call " + ("needs.skip" if name.endswith(".py") else "skip") + \
            " with the reason"


def check_missed():
    """tests-without-strangers finds those that were skipped or passed in part for want of a stranger."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "Testing/Temporary/LastTest.log"
        log.parent.mkdir(parents=True)
        log.write_text("".join(f"{i}/3 Testing: {name}\n{i}/3 Test: {name}\n{said}\n" for i, (name, said) in enumerate((
            ("integration.a", "skipped: " + needs.stranger_is_missing("h2spec")), ("net.b", "skipped: curl is not installed (Debian: curl)"),
            ("integration.c", ("not here: go: " + needs.stranger_is_missing("go_interop") + "\n") * 2)), 1)), encoding="utf-8")
        done = subprocess.run([LIB.parent / "tools/tests-without-strangers", folder], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == r"^(integration\.a|integration\.c)$", done.stdout


def check_self():
    """A fault of each kind is found."""
    bare = {"name": "bare", "command": ["/bin/true"], "properties": []}
    slow = {"name": "slow", "command": ["python3", "/x/tests/lib/guard.py", "true"], "properties": [{"name": "TIMEOUT", "value": 1000.0}]}
    good = dict(slow, properties=[{"name": "TIMEOUT", "value": 300.0}])
    assert [len(list(faults_of_entries([each]))) for each in (bare, slow, good)] == [2, 1, 0]
    assert len(list(faults_of_script("a.py", "import os\nsys.exit(77)\n"))) == 2
    assert len(list(faults_of_script("a.sh", 'true || { echo no; exit 77; }\n'))) == 2
    check_missed()
    parts = "# Entries of ctest: A\nguard.enter()\nclass A(unittest.TestCase):\n    def test_a(self): pass\nclass B(A): pass\n"
    assert "in B" in list(faults_of_script("a.py", parts))[0]
    assert not list(faults_of_script("a.py", "import guard\n\nguard.enter()\n"))


def entries_of(build):
    """What ctest lists, seen from another folder: it would begin the log in its own anew, in which a run may be writing."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "CTestTestfile.cmake").write_text(f'subdirs("{build}")\n', encoding="utf-8")
        listing = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    return json.loads(listing.stdout)["tests"]


def main():
    check_self()
    entries = entries_of(os.environ["MUSTER_BINARY_DIR"])
    assert entries, "ctest lists no tests"
    faults = list(faults_of_entries(entries))
    scripts = sorted(path for path in SCRIPTS.glob("test_*") if path.suffix in (".py", ".sh"))
    for path in scripts:
        faults += faults_of_script(path.name, path.read_text(encoding="utf-8"))
    print("\n".join(faults) if faults else f"{len(entries)} tests and {len(scripts)} scripts are guarded")
    return len(faults) > 0


sys.exit(main())
