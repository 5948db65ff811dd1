#!/usr/bin/env python3
"""Runs one file of pytest on the package of the build tree, by an interpreter that has what the file needs. usage: run.py FILE [WORD…]

A file says by a line "# Needs: MODULE…" what it needs besides pytest and numpy. With sanitizers the interpreter, which has none, gets
their library first."""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import guard

guard.enter()
import needs

PACKAGE = needs.BUILD.absolute() / "python"
PACKAGES = {"numpy": "python3-numpy", "pytest": "python3-pytest"}


def interpreter(modules):
    """MUSTER_PYTEST_PYTHON, a stranger's, this one or Debian's."""
    modules = [*modules, "pytest", "numpy"]
    if python := needs.find_python(*modules):
        return python
    if modules[0] not in PACKAGES:
        needs.skip(needs.stranger_is_missing(modules[0]))
    needs.skip(f"no Python has pytest and numpy (Debian: {' '.join(sorted(PACKAGES.values()))})")


def environment():
    env = dict(os.environ, PYTHONPATH=str(PACKAGE), PYTHONDONTWRITEBYTECODE="1", PATH=f"{needs.BUILD.absolute() / 'bin'}:{os.environ['PATH']}")
    module = PACKAGE / "muster" / "_muster.abi3.so"
    if not module.exists():
        needs.skip(f"{module} is not built (Debian: python3-dev)")
    libraries = subprocess.run(["ldd", module], capture_output=True, text=True, check=True).stdout
    if sanitizer := re.search(r"=> (\S*lib[at]san\S*)", libraries):
        env["LD_PRELOAD"] = f"{sanitizer[1]} libstdc++.so.6"  # it looks for the function that throws at its start alone
        # Interpreters end with memory in use, and numpy's threads need none of it here. A trap is undefined behaviour of our module.
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "quarantine_size_mb=16") + ":detect_leaks=0:handle_sigill=2"
    return env


def main():
    path = pathlib.Path(sys.argv[1])
    needed = re.search(r"^# Needs: (.+)$", path.read_text(encoding="utf-8"), re.M)
    python = interpreter(needed[1].split() if needed else [])
    os.execve(python, [python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(path), *sys.argv[2:]], environment())


main()
