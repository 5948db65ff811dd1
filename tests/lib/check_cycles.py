#!/usr/bin/env python3
"""Files of a folder that call each other in a circle, from the symbols of the built objects.

An edge A -> B: A uses a function that B defines. Tables of functions are data, so that a file that is called through one is not an edge: that is
how a cycle is cut. known_cycles.txt holds the cycles that are left, a line each; one that is not part of a line there fails, as does a share
of files or a size above the limits.

  check_cycles.py                check
  check_cycles.py --edges NAME   the functions behind each edge of the cycles with a file whose path contains NAME
  check_cycles.py --write        write known_cycles.txt anew
"""
import collections
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(os.environ.get("MUSTER_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("MUSTER_BINARY_DIR", ROOT / "build-asan"))
KNOWN = pathlib.Path(__file__).resolve().parent / "known_cycles.txt"
LAYERS = "runtime proto net resolvers collective cluster params training".split()
SHARE_MAX = 0.10
FILES_MAX = 5
FUNCTION_KINDS = "TWi"  # of nm: defined, weak, chosen when it is loaded


def objects():
    """The object of each product source that is there."""
    places = [(BUILD / "CMakeFiles" / f"muster_{layer}.dir" / layer, layer) for layer in LAYERS]
    places.append((BUILD / "tools/CMakeFiles/muster.dir", "tools"))
    found = {}
    for folder, prefix in places:
        for path in sorted(folder.rglob("*.c.o")):
            source = f"{prefix}/{path.relative_to(folder).as_posix()[:-2]}"
            if (ROOT / source).exists():
                found[path.as_posix()] = source
    return found


def symbols(found):
    """Of each source the names that it uses, and of each function the source that defines it."""
    uses, definers = collections.defaultdict(set), {}
    output = subprocess.run(["nm", "-A", "-g", *found], check=True, capture_output=True, text=True).stdout
    for line in output.splitlines():
        file, _, rest = line.partition(":")
        kind, name = rest.split()[-2:]
        if kind == "U":
            uses[found[file]].add(name)
        elif kind in FUNCTION_KINDS:
            definers[(found[file].split("/")[0], name)] = found[file]
    return uses, definers


def edges_of(uses, definers):
    """{source: {other source of the same top folder: functions}}"""
    edges = collections.defaultdict(lambda: collections.defaultdict(set))
    for source, names in uses.items():
        for name in names:
            other = definers.get((source.split("/")[0], name))
            if other is not None and other != source:
                edges[source][other].add(name)
    return edges


def cycles_of(edges):
    """Strongly connected components of more than one file (Tarjan 1972), largest first; without recursion."""
    index, low, on_stack, stack, found = {}, {}, set(), [], []
    for root in sorted(edges):
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(edges.get(other, ())))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    members = stack[at:]
                    del stack[at:]
                    on_stack.difference_update(members)
                    if len(members) > 1:
                        found.append(sorted(members))
    return sorted(found, key=lambda members: (-len(members), members))


def faults_of(cycles, known, file_count):
    in_cycles = sum(map(len, cycles))
    for members in cycles:
        if not any(set(members) <= each for each in known):
            yield f"these files call each other in a circle: {' '.join(members)}; cut it (a callee returns an outcome, or calls a table of functions)"
        if len(members) > FILES_MAX:
            yield f"a cycle of {len(members)} files, at most {FILES_MAX} are allowed: {' '.join(members)}"
    if in_cycles > SHARE_MAX * file_count:
        yield f"{in_cycles} of {file_count} files are in cycles, at most {SHARE_MAX:.0%} are allowed"


def check_self():
    edges = {"a": {"b": {"f"}}, "b": {"c": {"g"}}, "c": {"a": {"h"}, "d": {"i"}}, "d": {}}
    assert cycles_of(edges) == [["a", "b", "c"]], cycles_of(edges)
    assert len(list(faults_of([["a", "b"]], [], 100))) == 1
    assert not list(faults_of([["a", "b"]], [{"a", "b", "c"}], 100))
    assert len(list(faults_of([["a", "b"]], [{"a", "b"}], 10))) == 1
    large = [str(i) for i in range(FILES_MAX + 1)]
    assert len(list(faults_of([large], [set(large)], 1000))) == 1


def print_edges(edges, cycles, name):
    for members in cycles:
        if not any(name in member for member in members):
            continue
        print(f"{len(members)} files:")
        for source in members:
            for other in sorted(set(edges[source]) & set(members)):
                print(f"  {source} -> {other}: {' '.join(sorted(edges[source][other]))}")


def main():
    check_self()
    found = objects()
    if not found:
        print("skipped: there are no objects: build first")
        return 77
    edges = edges_of(*symbols(found))
    cycles = cycles_of(edges)
    if sys.argv[1:2] == ["--edges"]:
        print_edges(edges, cycles, sys.argv[2])
        return 0
    if sys.argv[1:] == ["--write"]:
        KNOWN.write_text("".join(" ".join(members) + "\n" for members in cycles), encoding="utf-8")
        return 0
    known = [set(line.split()) for line in KNOWN.read_text(encoding="utf-8").splitlines()]
    faults = list(faults_of(cycles, known, len(found)))
    print("\n".join(faults))
    print(f"{sum(map(len, cycles))} of {len(found)} files in {len(cycles)} cycles, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
