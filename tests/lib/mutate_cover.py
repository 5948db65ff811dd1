"""Which test reaches which line, recorded once by gcov: build-mutate/asan/coverage.json and the sources as they were then.

A record holds until the sources of the test change; lines that have moved since are found again by their text.
"""
import bisect
import difflib
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import threading

from mutate_build import FOLDERS
from mutate_run import SKIPPED, note, run_all

RECORD_TIMEOUT_S = 600
TAG_FUNCTION, TAG_ARCS = 0x01000000, 0x01A10000


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def counts_anything(path):
    """False: no line of this .gcda was reached. Counters that are all zero are written as a negative length."""
    data = path.read_bytes()
    words = [int.from_bytes(data[i:i + 4], "little", signed=True) for i in range(0, len(data) - 3, 4)]
    at = next((i for i, word in enumerate(words) if word == TAG_FUNCTION), len(words))
    while at + 1 < len(words):
        tag, length = words[at], words[at + 1]
        if tag == TAG_ARCS and length > 0:
            return True
        at += 2 + (max(length, 0) >> 2)
    return False


class Coverage:
    def __init__(self, build, runner):
        self.build, self.runner = build, runner
        self.path, self.texts = build.folder / "coverage.json", build.folder / "recorded"
        self.texts.mkdir(parents=True, exist_ok=True)
        self.records = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        self.lock, self.maps = threading.Lock(), {}

    def fingerprint(self, entry):
        """Of a program the objects of its own sources: a change in the library of the tests would otherwise make all records invalid."""
        path = pathlib.Path(entry.program)
        if not path.is_file():
            return ""
        objects = sorted((self.build.folder / "tests" / "CMakeFiles" / f"{path.name}.dir").rglob("*.o"))
        content = b"".join(each.read_bytes() for each in objects) or path.read_bytes()
        return digest(content + " ".join(entry.command).encode())

    def record(self, entries, jobs, stop, is_anew):
        """Run those whose record is missing or of another program."""
        due = [entry for entry in entries if is_anew or self.records.get(entry.name, {}).get("program") != self.fingerprint(entry)]
        if not due:
            return
        note(f"recording which lines {len(due)} tests reach")
        done = []

        def one(entry):
            self.record_one(entry, stop)
            with self.lock:
                done.append(entry)
                if len(done) % 20 == 0:
                    note(f"recorded {len(done)} of {len(due)}")
                    self.save()
        run_all(jobs, one, due, stop)
        self.save()

    def save(self):
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.records), encoding="utf-8")
        os.replace(part, self.path)

    def record_one(self, entry, stop):
        gcda = self.build.folder / "gcda" / entry.name
        shutil.rmtree(gcda, ignore_errors=True)
        gcda.mkdir(parents=True)
        code, seconds = self.runner.run(entry, RECORD_TIMEOUT_S, stop, gcda)
        if code is None:
            return
        lines = self.lines_of(gcda) if code == 0 else {}
        shutil.rmtree(gcda, ignore_errors=True)
        if code not in (0, SKIPPED):
            note(f"{entry.name} fails without a fault (exit code {code}): it is left out; see {self.runner.output / entry.name}.txt")
        with self.lock:
            self.records[entry.name] = {"program": self.fingerprint(entry), "code": code, "seconds": round(seconds, 2), "lines": lines}

    def lines_of(self, gcda):
        """File -> [digest of its text, lines reached]."""
        found = {}
        paths = [path for path in gcda.rglob("*.gcda") if counts_anything(path)]
        for path in paths:
            notes = pathlib.Path("/", path.relative_to(gcda)).with_suffix(".gcno")
            if notes.exists():
                path.with_suffix(".gcno").symlink_to(notes)
        for i in range(0, len(paths), 50):
            words = ["gcov", "--json-format", "--stdout", *(str(path) for path in paths[i:i + 50])]
            done = subprocess.run(words, cwd=self.build.folder, capture_output=True, text=True, check=False)
            for line in done.stdout.splitlines():
                if line.startswith("{"):
                    self.take(json.loads(line), found)
        return found

    def take(self, told, found):
        for file in told["files"]:
            path = pathlib.Path(os.path.normpath(os.path.join(told["current_working_directory"], file["file"])))
            if not path.is_relative_to(self.build.tree) or path.suffix != ".c":
                continue
            name = path.relative_to(self.build.tree).as_posix()
            if name.split("/")[0] not in FOLDERS:
                continue
            text = path.read_bytes()
            key = digest(text)
            kept = self.texts / key
            with self.lock:
                if not kept.exists():
                    kept.write_bytes(text)
                    every = sorted({each["line_number"] for each in file["lines"]})
                    (self.texts / f"{key}.lines").write_text(json.dumps(every), encoding="ascii")
            lines = {each["line_number"] for each in file["lines"] if each["count"]}
            found[name] = [key, sorted(lines | set(found.get(name, [0, []])[1]))]

    def usable(self, entries):
        return [entry for entry in entries if self.records.get(entry.name, {}).get("code") == 0]

    def missing(self, entries):
        return [entry.name for entry in entries if entry.name not in self.records]

    def seconds(self, entry):
        return self.records[entry.name]["seconds"]

    def then(self, key, fault, text):
        """The line that gcov counts this one as, in the text as it was recorded."""
        if (fault.file, key) not in self.maps:
            old = (self.texts / key).read_text(encoding="utf-8").splitlines()
            mapped = {}
            if digest(text.encode()) == key:
                mapped = {i: i for i in range(1, len(old) + 1)}
            else:
                for a, b, size in difflib.SequenceMatcher(None, old, text.splitlines(), autojunk=False).get_matching_blocks():
                    mapped.update({b + i + 1: a + i + 1 for i in range(size)})
            every = json.loads((self.texts / f"{key}.lines").read_text(encoding="ascii"))
            self.maps[(fault.file, key)] = mapped, every
        mapped, every = self.maps[(fault.file, key)]
        line = fault.line
        while line > 1 and line not in mapped:  # a new line is reached with the one before it
            line -= 1
        at = bisect.bisect_right(every, mapped.get(line, 0))
        return every[at - 1] if at else 0

    def reaching(self, fault, entries, text):
        """The entries that reach the fault: those that bear the file's name first, then the fastest."""
        stem = fault.file.rsplit("/", 1)[-1].removesuffix(".c")
        found = []
        for entry in entries:
            key, lines = self.records[entry.name]["lines"].get(fault.file, [None, ()])
            line = self.then(key, fault, text) if key else 0
            at = bisect.bisect_left(lines, line)
            if line and at < len(lines) and lines[at] == line:
                found.append(entry)
        return sorted(found, key=lambda entry: (entry.name.split(".")[-1] != stem, self.seconds(entry)))
