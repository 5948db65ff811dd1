#!/usr/bin/env python3
"""Every tracked file is one that the project knows: it lies where the build, the tests or a README look for files of its kind.

A file that nothing names is a leftover of an editor, a download or a run: remove it, or add its kind to PLACES with the change that reads it.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

LIB = pathlib.Path(__file__).resolve().parent
# Folder: kinds of files in it. A kind is a suffix, or a whole name. "folder/**" holds folders of the same kinds.
PLACES = {
    "": ".clang-format .editorconfig .gitattributes .gitignore CHANGELOG.md CMakeLists.txt CMakePresets.json CONTRIBUTING.md LICENSE README.md SECURITY.md",
    ".ci": "run",
    "cmake": ".cmake .in",
    "docs/**": ".md",
    "examples": ".c CMakeLists.txt README.md",
    "examples/*": ".c .h .proto",
    "examples/python": ".py",
    "examples/data": ".csv .txt .py README.md",
    "include/muster": ".h",
    "proto/google/protobuf": ".proto LICENSE README.md",
    "tests": "CMakeLists.txt",
    "tests/bench": ".c checkpoint_restore killed_workers.py jax_operations preload_recovery publish_hosts random_kills",
    "tests/bench/peers": ".c .h .py build-rpc params_table rpc_table table tfrecord_table torch_table",
    "tests/bench/peers/params": ".c .cc .h .py",
    "tests/bench/peers/rpc/**": ".c .cc .go .mod .rs .toml .lock",
    "tests/cluster": ".c",
    "tests/conformance": ".c .h",
    "tests/conformance/cases": ".json",
    "tests/fake_cloud": ".c .json",
    "tests/fake_gpu": ".c .h",
    "tests/fuzz": ".c .h README.md",
    "tests/fuzz/corpus/*": "*",
    "tests/gpu": ".c .h run",
    "tests/integration": ".py .sh",
    "tests/lib": ".c .h .py .sh etcdctl_answers.txt known_cycles.txt",
    "tests/lib/cross": ".h",
    "tests/mutants": ".toml .tsv",
    "tests/power": ".c .h",
    "tests/programs": ".c .go .py",
    "tests/programs/puppet": ".c .h",
    "tests/proto": ".proto",
    "tests/proto/golden": ".txt",
    "tests/python": ".py",
    "tests/seeds": ".seed README.md",
    "tests/sim": ".c .h README.md",
    "tests/torture": ".c .h",
    "tests/tools": "install-strangers mutate mutate-sim pause-tests tests-without-strangers",
    "tests/unit/**": ".c",
    "tests/unit/resolvers/open": ".c resolver_facts.txt",
    "python": ".c .h CMakeLists.txt README.md pyproject.toml",
    "python/muster/**": ".py .pyi py.typed",
    "tools/**": ".c .h README.md",
    "tools": "CMakeLists.txt README.md install-dependencies quickstart test wheel",
    "tools/run/report": ".c .h README.md page.html",
    "tools/protoc_gen_muster": ".c .h .proto README.md",
}
LAYERS = ("runtime", "proto", "net", "resolvers", "collective", "cluster", "params", "training")
for layer in LAYERS:
    PLACES[layer + "/**"] = ".c .h README.md" + (" .proto" if layer == "proto" else "")
LEFTOVER = re.compile(r"^\.part-|^\.?#|~$|\.(swp|swo|orig|rej|bak|tmp|part|o|a|so|pyc|log)$|^core(\.\d+)?$|^\.DS_Store$")
CONFLICT = re.compile(rb"^<{7} .*^={7}$.*^>{7} ", re.M | re.S)
MAY_BE_EMPTY = re.compile(r"^(tests/fuzz/corpus/\w+/empty|python/muster/py.typed)$")
BYTES_MAX = 1 << 20


def kinds_at(folder):
    """The kinds of files that belong to this folder, or None."""
    parts = folder.split("/") if folder else []
    names = [folder, "/".join([*parts[:-1], "*"])] if parts else [folder]
    names += ["/".join([*parts[:i], "**"]) for i in range(len(parts), 0, -1)]
    return next((PLACES[name].split() for name in names if name in PLACES), None)


def has_conflict(path):
    """git has left the two sides of a merge in it."""
    return CONFLICT.search(path.read_bytes()) is not None if path.is_file() else False


def fault_of(path, size):
    """Why this tracked file must not be there, or None."""
    folder, _, name = path.rpartition("/")
    kinds = kinds_at(folder)
    if LEFTOVER.search(name):
        return "is a leftover of a program"
    if size == 0 and not MAY_BE_EMPTY.match(path):
        return "is empty"
    if size > BYTES_MAX:
        return f"has {size} bytes; at most {BYTES_MAX} are allowed"
    if kinds is None:
        return "is in a folder that PLACES does not name"
    if not any(kind in ("*", name) or (kind.startswith(".") and name.endswith(kind)) for kind in kinds):
        return f"is of a kind that PLACES does not name for '{folder or '.'}' ({' '.join(kinds)})"
    return None


def faults_of(root):
    """A line for each tracked file that nothing names."""
    listing = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    paths = [root / path for path in listing.split("\0") if path]
    found = []
    for path in (path for path in paths if path.exists() or path.is_symlink()):
        name = path.relative_to(root).as_posix()
        found.append((name, fault_of(name, path.lstat().st_size) or ("has a conflict of a merge" if has_conflict(path) else None)))
    return len(paths), [f"{path} {fault}: mend or remove it, or name its kind in tests/lib/check_tracked.py" for path, fault in found if fault]


def check_self():
    """In a repository with planted files each of them is refused, and nothing else."""
    planted = {".part-3f21": "x", "net/stream/stream.c.orig": "x", "net/stream/stream.c~": "x", "notes.txt": "x", "docs/page.md": "", "tools/a.out": "x",
               "net/merged.c": "<<<<<<< HEAD\nx\n=======\ny\n>>>>>>> other\n",
               "scratch/stream.c": "x", "tests/unit/net/test_a.py": "x", "examples/big.c": "x" * (BYTES_MAX + 1)}
    right = {"net/stream/stream.c": "x", "docs/decisions/page.md": "x", "tests/fuzz/corpus/uri/empty": "", "tests/fuzz/corpus/uri/odd": "x", "README.md": "x",
             "tests/bench/peers/rpc/go/main.go": "x", "examples/cache/server.c": "x"}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        subprocess.run(["git", "init", "-q", root], check=True)
        for name, text in (planted | right).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        subprocess.run(["git", "-C", root, "add", "-f", "."], check=True)
        _, faults = faults_of(root)
    assert sorted(fault.split(" ")[0] for fault in faults) == sorted(planted), faults


def main():
    root = LIB.parents[1]
    check_self()
    if not (root / ".git").exists():
        print("skipped: this is not a git checkout, so that nothing is tracked")
        return 77
    count, faults = faults_of(root)
    print("\n".join(faults) if faults else f"{count} tracked files are all of known kinds")
    return len(faults) > 0


sys.exit(main())
