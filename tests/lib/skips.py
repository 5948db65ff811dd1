#!/usr/bin/env python3
"""What the last run of ctest has skipped, whole tests and single cases, and why. usage: skips.py BUILD_FOLDER"""
import collections
import pathlib
import re
import sys

BEGIN = re.compile(r"^ *\d+/\d+ Testing: (\S+)")  # each test begins so in the log
TOLD = re.compile(r"^(?:skipped|not here): (.+)")  # needs.py, guard.sh, cases.py and assertion_count.c say it so


def skips_of(log):
    """Reason -> the tests that gave it, in the order of the log."""
    found, name = collections.OrderedDict(), None
    for line in log.splitlines():
        if match := BEGIN.match(line):
            name = match[1]
        elif name and (match := TOLD.match(line)):
            found.setdefault(match[1], collections.OrderedDict())[name] = None
    return found


def report(found):
    if not found:
        return "Nothing was skipped."
    lines = [f"Skipped, for {len(found)} reason{'s' if len(found) > 1 else ''}:"]
    return "\n".join(lines + [f"  {reason}\n    {' '.join(names)}" for reason, names in found.items()])


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: skips.py BUILD_FOLDER")
    log = pathlib.Path(sys.argv[1], "Testing/Temporary/LastTest.log")
    if not log.is_file():
        sys.exit(f"skips: {log} must be the log of a run of ctest, but is not there; run ./tools/test")
    print("\n" + report(skips_of(log.read_text(encoding="utf-8", errors="replace"))))


if __name__ == "__main__":
    main()
