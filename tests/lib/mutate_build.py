"""The copy of the tree in which tests/tools/mutate puts its faults: built once, then one object and one link per fault."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

FOLDERS = "runtime proto net resolvers collective cluster params training tools".split()
SANITIZERS = "address,undefined"
COMPILE_TIMEOUT_S = 300
INCLUDED_SOURCE = re.compile(r'^#include "([^"]+\.c)"$', re.MULTILINE)
# Warnings of deleted code are no matter; a call with swapped arguments of other types is refused.
OWN_FLAGS = ["-Wno-error", "-Werror=incompatible-pointer-types", "-Werror=int-conversion", "-Werror=discarded-qualifiers"]


class BuildFailed(Exception):
    """The tree without a fault does not build."""


def listed_files(root):
    """Tracked files and new ones that git does not ignore."""
    listing = subprocess.run(["git", "-C", root, "ls-files", "-z", "-c", "-o", "--exclude-standard"], capture_output=True, text=True, check=True)
    return sorted({name for name in listing.stdout.split("\0") if name and (root / name).is_file()})


def product_files_in(file, tree):
    """The product files of which this compilation makes code: itself, or those that a test includes to reach their static functions."""
    name = file.relative_to(tree).as_posix()
    if name.split("/")[0] in FOLDERS:
        return [name]
    return [included for included in INCLUDED_SOURCE.findall(file.read_text(encoding="utf-8")) if included.split("/")[0] in FOLDERS]


class Build:
    """root: the user's tree, which is only read; folder: build-mutate."""

    def __init__(self, root, folder, is_plain, jobs):
        self.root, self.jobs, self.is_plain = pathlib.Path(root), jobs, is_plain
        self.tree = pathlib.Path(folder) / "tree"
        self.folder = pathlib.Path(folder) / ("plain" if is_plain else "asan")
        self.right = self.folder / "right"  # what a fault has taken the place of
        self.faults = self.folder / "faults"
        self.commands, self.links, self.lines = {}, {}, {}

    def sync(self):
        """Bring the copy up to date: only what differs is written, so that only that is built."""
        names = listed_files(self.root)
        for name in names:
            source, copy = self.root / name, self.tree / name
            if not copy.is_file() or source.read_bytes() != copy.read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy)
            if copy.stat().st_mode != source.stat().st_mode:
                shutil.copymode(source, copy)
        kept = set(names)
        for path in [path for path in self.tree.rglob("*") if path.is_file() and "__pycache__" not in path.parts]:
            if path.relative_to(self.tree).as_posix() not in kept:
                path.unlink()

    def build(self):
        self.restore()
        self.sync()
        if not (self.folder / "build.ninja").exists():
            words = ["cmake", "-G", "Ninja", "-S", self.tree, "-B", self.folder, "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1 -Wno-maybe-uninitialized",
                     "-DMUSTER_MUTATE=ON", "-DMUSTER_SANITIZE=" + ("" if self.is_plain else SANITIZERS)]
            self.run_or_fail(words)
        self.run_or_fail(["cmake", "--build", self.folder, "-j", str(self.jobs)])
        self.read_commands()

    def run_or_fail(self, words):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [line for line in (done.stdout + done.stderr).splitlines() if re.search(r"error|FAILED|undefined", line)]
            raise BuildFailed("\n".join(lines[:30] or (done.stdout + done.stderr).splitlines()[-30:]))

    def read_commands(self):
        for each in json.loads((self.folder / "compile_commands.json").read_text(encoding="utf-8")):
            file = pathlib.Path(each["file"])
            if not file.is_relative_to(self.tree):
                continue
            words = shlex.split(each["command"])
            for name in product_files_in(file, self.tree):
                self.commands.setdefault(name, []).append((words, words[words.index("-o") + 1], file))
        users = {}
        for line in (self.folder / "build.ninja").read_text(encoding="utf-8").splitlines():
            found = re.match(r"build ([^:|]+?)(?: \|[^:]*)?: (\w+_LINKER_\w+) ([^|]*)", line)
            for word in found[3].split() if found else ():
                users.setdefault(word, []).append(found[1].strip())
        self.links = users

    def compile_fault(self, number, fault, text):
        """[(made, place)] for each library or program that holds the file, made with this text; None: it does not compile."""
        folder = self.faults / str(number)
        shutil.rmtree(folder, ignore_errors=True)
        source = self.tree / fault.file
        faulty = folder / "tree" / fault.file
        faulty.parent.mkdir(parents=True)
        faulty.write_text(f'#line 1 "{source}"\n{text}', encoding="utf-8")
        made = []
        for i, (words, output, compiled) in enumerate(self.commands.get(fault.file, [])):
            if output not in self.links:
                continue
            new = folder / f"{i}.o"
            words = [*words, "-iquote", str(folder / "tree")]  # where a test that includes the file finds it first
            if not self.run_quietly(self.compile_words(words, source, faulty if compiled == source else compiled, new)):
                return None
            for place in self.links[output]:
                result = folder / f"{i}.{pathlib.Path(place).name}"
                if not self.run_quietly(self.link_line(place, output, new, result)):
                    return None
                made.append((result, self.folder / place))
        return made

    @staticmethod
    def compile_words(words, source, faulty, new):
        kept, skip = [], False
        for word in words:
            if skip or word in ("-MF", "-MT", "-o", "-c"):
                skip = not skip
            elif word not in ("-Werror", "--coverage", "-MD"):
                kept.append(word)
        return [*kept, *OWN_FLAGS, "-iquote", str(source.parent), "-o", str(new), "-c", str(faulty)]

    def link_line(self, place, old, new, result):
        """The last command of the place, with the new object and the new output."""
        if place not in self.lines:
            words = ["ninja", "-C", self.folder, "-t", "commands", "-s", place]
            self.lines[place] = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[-1].strip()
        line = self.lines[place]
        line = re.sub(rf"(?<=\s){re.escape(old)}(?=\s)", str(new), line)
        return re.sub(rf"(?<=\s-o ){re.escape(place)}(?=\s)", str(result), line)

    def run_quietly(self, command):
        try:
            return subprocess.run(command, shell=isinstance(command, str), cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  env=os.environ | {"CCACHE_DISABLE": "1"}, timeout=COMPILE_TIMEOUT_S, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def has_same_code(self, fault, text):
        """The compiler makes the same of it, optimized and without sanitizers: no test can notice it."""
        own = [words for words, _, compiled in self.commands.get(fault.file, []) if compiled == self.tree / fault.file]
        for words in own:
            code = []
            for name, each in (("a", (self.tree / fault.file).read_text(encoding="utf-8")), ("b", text)):
                faulty = self.faults / f"same-{name}" / pathlib.Path(fault.file).name
                faulty.parent.mkdir(parents=True, exist_ok=True)
                faulty.write_text(f'#line 1 "{fault.file}"\n{each}', encoding="utf-8")
                new = self.faults / "same.o"
                plain = [word for word in words if not word.startswith(("-fsanitize", "-fno-sanitize")) and word not in ("-O1", "-g")]
                if not self.run_quietly(self.compile_words([*plain, "-O2"], self.tree / fault.file, faulty, new)):
                    return False
                code.append(new.read_bytes())
            if code[0] != code[1]:
                return False
        return bool(own)

    def install(self, made):
        """Put what was made in its place, by rename; the right ones are kept."""
        self.right.mkdir(parents=True, exist_ok=True)
        for result, place in made:
            kept = self.right / place.relative_to(self.folder).as_posix().replace("/", "\\")
            if not kept.exists():
                os.link(place, kept)
            beside = place.with_name(place.name + ".faulty")
            beside.unlink(missing_ok=True)
            os.link(result, beside)
            os.replace(beside, place)

    def restore(self):
        """Also what a run that was killed has left."""
        for kept in sorted(self.right.glob("*")) if self.right.exists() else ():
            os.replace(kept, self.folder / kept.name.replace("\\", "/"))
