#!/usr/bin/env python3
"""tests/tools/mutate: where it puts faults and which; its ledger; and a run in a small project, whose tests notice some."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIB = ROOT / "tests" / "lib"
sys.path.insert(0, str(LIB))
import guard
import needs

guard.enter()
import mutate_faults
import mutate_ledger

PATIENCE_S = 300
# Kind of fault, a body, and the body with each fault of this kind, in any order.
OPERATORS = (
    ("negate", "if (a > b) f(a);", ["if (!(a > b)) f(a);"]),
    ("negate", "while (is_on(a)) f(a);", ["while (!(is_on(a))) f(a);"]),
    ("never", "if (a) f(a);", ["if (false) f(a);"]),
    ("never", "for (int i = 0; i < n; i++) f(i);", ["for (int i = 0; false; i++) f(i);"]),
    ("always", "if (a) f(a);", ["if (true) f(a);"]),
    ("rc not checked", "if (rc != MUSTER_OK) return rc;", ["if (false) return rc;"]),
    ("operand", "if (a && b) f(a);", ["if (true && b) f(a);", "if (a && true) f(a);"]),
    ("operand", "x = a || b && c;", ["x = false || b && c;", "x = a || false;", "x = a || true && c;", "x = a || b && true;"]),
    ("operand", "return (a || b) && c;", ["return true && c;", "return (a || b) && true;", "return (false || b) && c;", "return (a || false) && c;"]),
    ("relational", "x = a < b;", ["x = a <= b;"]),
    ("relational", "x = a >= b;", ["x = a > b;"]),
    ("relational", "x = a == b;", ["x = a != b;"]),
    ("arithmetic", "x = a + 1;", ["x = a - 1;", "x = a ;"]),
    ("arithmetic", "x = a - b;", ["x = a + b;"]),
    ("arithmetic", "x = (size_t)-1;", []),
    ("arithmetic", "x += a;", ["x -= a;"]),
    ("negation dropped", "x = !a;", ["x = a;"]),
    ("negation dropped", "if (!a) f(a);", []),  # the negated condition is the same
    ("delete call", "f(a);", ["(void)0;"]),
    ("delete call", "(void)f(a);", ["(void)0;"]),
    ("delete call", "for (;;) a->b(c);", ["for (;;) (void)0;"]),
    ("delete assignment", "a->x = f(b);", ["(void)0;"]),
    ("delete assignment", "*x = a;", ["(void)0;"]),
    ("delete assignment", "int x = a; struct s *y = a; uint8_t z[4] = {0};", []),
    ("delete assignment", "count++;", ["(void)0;"]),
    ("constant", "x = 7u;", ["x = 8u;", "x = 0u;"]),
    ("constant", "x = 0;", ["x = 1;"]),
    ("constant", "x = true;", ["x = false;"]),
    ("constant", "struct s x = {0}; char y[8]; switch (a) { case 3: break; }", []),
    ("error", "return MUSTER_NOT_FOUND;", ["return MUSTER_ALREADY_EXISTS;"]),
    ("error", "if (rc == MUSTER_OK) rc = MUSTER_OK;", ["if (rc == MUSTER_OK) rc = MUSTER_INTERNAL;"]),
    ("swap", "f(a, b, c);", ["f(b, a, c);", "f(a, c, b);"]),
    ("swap", 'muster_error_set(a, b, "x"); f(a, "b");', []),
    ("swap", "x = muster_mem_alloc_zero(mem, n, s);", []),
    ("swap", "x = strcmp(a, b) == 0 || memcmp(a, b, c) != 0;", ["x = strcmp(a, b) == 0 || memcmp(a, c, b) != 0;"]),
    ("swap", "x = strcmp(a, b) < 0;", ["x = strcmp(b, a) < 0;"]),
    ("constant", "x = muster_mem_alloc_zero(mem, 1, n + 5);", ["x = muster_mem_alloc_zero(mem, 0, n + 5);", "x = muster_mem_alloc_zero(mem, 1, n + 0);"]),
    ("return", "return a + b;", ["return 0;", "return 1;"]),
    ("return", "return MUSTER_ABORTED;", ["return MUSTER_OK;"]),
    ("return", "return;", []),
    ("flag dropped", "f(A_ONE | A_TWO);", ["f(A_ONE );", "f( A_TWO);"]),
)
UNTOUCHED = """
#define IS_ODD(x) ((x) + 1 > 2 && \\
                   f(x, 1))
static const int table[] = {1, 2, 3};
enum { LIMIT = 5 };
/* if (a < b) f(a, 1); */
static void one(void)
{
    static const char *const names[] = {"a < b", "c"};
    // a = b + 1;
    assert(a < b && c);
    MUSTER_ASSERT(a == 1);
    MUSTER_LOG(env, WARN, "lost", "count", a + 1);
    _Static_assert(sizeof(int) == 4, "x");
    (void)a;
}
"""


def bodies(kind, body):
    text = "static int f(int a)\n{\n    " + body + "\n}\n"
    return [mutate_faults.apply(text, fault).split("{\n    ", 1)[1][:-3] for fault in mutate_faults.faults_of("net/x.c", text)
            if fault.fault.startswith(kind + ":")]


class Faults(unittest.TestCase):
    def test_each_operator_before_and_after(self):
        for kind, before, after in OPERATORS:
            with self.subTest(kind=kind, body=before):
                self.assertEqual(sorted(" ".join(each.split()) for each in bodies(kind, before)), sorted(" ".join(each.split()) for each in after))

    def test_every_kind_has_a_sample(self):
        source = (LIB / "mutate_faults.py").read_text(encoding="utf-8")
        for kind in {kind for kind, _, after in OPERATORS if after}:
            self.assertIn(f'"{kind}"', source)
        sampled = {kind for kind, _, after in OPERATORS if after}
        found = {fault.fault.split(":")[0] for path in (ROOT / "net").glob("tls*.c")
                 for fault in mutate_faults.faults_of("net/" + path.name, path.read_text(encoding="utf-8"))}
        self.assertLessEqual(found, sampled)

    def test_comments_texts_macros_tables_and_assertions_are_left_alone(self):
        self.assertEqual(mutate_faults.faults_of("net/x.c", UNTOUCHED), [])

    def test_the_key_does_not_know_the_line(self):
        text = "static void f(int a)\n{\n    if (a)\n        g(a);\n    if (a)\n        g(a);\n}\n"
        keys = [fault.key for fault in mutate_faults.faults_of("net/x.c", text)]
        moved = [fault.key for fault in mutate_faults.faults_of("net/x.c", "/* New. */\n\n" + text)]
        self.assertEqual(keys, moved)
        self.assertEqual(len(keys), len(set(keys)), "two faults have one key")


class Ledgers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.faults = mutate_faults.faults_of("net/x.c", "static void f(int a)\n{\n    if (a)\n        g(a);\n}\n")

    def test_what_is_recorded_is_read_again_and_sorted(self):
        ledger = mutate_ledger.Ledger(self.folder)
        for fault in reversed(self.faults):
            ledger.record(fault, "survived", "quick")
        lines = (self.folder / "ledger.tsv").read_text(encoding="utf-8").splitlines()
        self.assertEqual(lines[1:], sorted(lines[1:]))
        self.assertEqual([mutate_ledger.Ledger(self.folder).verdict(fault) for fault in self.faults], [("survived", "quick")] * len(self.faults))

    def test_a_reviewed_reason_makes_it_equivalent(self):
        fault = self.faults[0]
        (self.folder / "equivalent.tsv").write_text("\n".join("\t".join(row) for row in (
            mutate_ledger.EQUIVALENT_COLUMNS, (*fault.key, "g ignores it"))) + "\n", encoding="utf-8")
        ledger = mutate_ledger.Ledger(self.folder)
        self.assertEqual([ledger.verdict(each) is not None for each in self.faults], [True] + [False] * (len(self.faults) - 1))

    def test_rows_of_lines_that_are_gone_are_forgotten(self):
        ledger = mutate_ledger.Ledger(self.folder)
        for fault in self.faults:
            ledger.record(fault, "killed", "net.x")
        ledger.prune({"net/x.c"}, self.faults[1:])
        self.assertEqual(len(mutate_ledger.Ledger(self.folder).rows), len(self.faults) - 1)

    def test_of_two_rows_of_a_fault_the_killed_one_counts(self):
        fault = self.faults[0]
        rows = ["\t".join((*fault.key, *end)) for end in (("killed", "net.x"), ("survived", "quick"))]
        (self.folder / "ledger.tsv").write_text("\n".join(("\t".join(mutate_ledger.COLUMNS), *rows)) + "\n", encoding="utf-8")
        self.assertEqual(mutate_ledger.Ledger(self.folder).verdict(fault), ("killed", "net.x"))

    def test_a_row_without_its_columns_is_told(self):
        (self.folder / "ledger.tsv").write_text("\t".join(mutate_ledger.COLUMNS) + "\nnet/x.c\tkilled\n", encoding="utf-8")
        with self.assertRaisesRegex(SystemExit, "line 2 .* must have 6 columns"):
            mutate_ledger.Ledger(self.folder)


PROJECT = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES C)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_library(small_net SHARED net/limit.c)
target_compile_options(small_net PRIVATE --coverage)
target_link_options(small_net PRIVATE --coverage)
add_executable(test_limit test_limit.c)
target_link_libraries(test_limit PRIVATE small_net)
add_executable(test_inside tests/test_inside.c)
target_compile_options(test_inside PRIVATE --coverage -I${CMAKE_SOURCE_DIR})
target_link_options(test_inside PRIVATE --coverage)
enable_testing()
add_test(NAME net.inside COMMAND python3 -I -S ${CMAKE_SOURCE_DIR}/tests/lib/guard.py $<TARGET_FILE:test_inside>)
set_tests_properties(net.inside PROPERTIES LABELS quick)
add_test(NAME net.limit COMMAND python3 -I -S ${CMAKE_SOURCE_DIR}/tests/lib/guard.py $<TARGET_FILE:test_limit>)
set_tests_properties(net.limit PROPERTIES LABELS quick)
add_test(NAME integration.spend COMMAND python3 -I -S ${CMAKE_SOURCE_DIR}/tests/lib/guard.py $<TARGET_FILE:test_limit> spend)
""",
    "net/limit.c": """
#include <stdbool.h>

bool is_below(int value);
int spend(int value);

bool is_below(int value)
{
    return value < 10;
}

int spend(int value)
{
    if (value > 3)
        value = 3;
    return value;
}
""",
    "test_limit.c": """
#include <stdbool.h>

bool is_below(int value);
int spend(int value);

int main(int count, char **words)
{
    (void)words;
    if (count > 1)
        return spend(5) == 3 ? 0 : 1;
    return is_below(9) && !is_below(11) ? 0 : 1;
}
""",
    "net/inside.c": """
#include <stdbool.h>

static bool is_odd(int value)
{
    return value % 2 == 1;
}
""",
    "tests/test_inside.c": """
#include "net/inside.c"

int main(void)
{
    return is_odd(3) && !is_odd(4) ? 0 : 1;
}
""",
}


BELOW = ("is_below", "return value < 10;")


class Project(unittest.TestCase):
    """Its test reaches is_below and not spend, and does not know the limit exactly."""

    def setUp(self):
        for name, package in (("cmake", "cmake"), ("ninja", "ninja-build"), ("gcov", "gcc"), ("git", "git")):
            needs.tool(name, package)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in PROJECT.items():
            self.write(name, text)
        (self.root / "tests" / "tools").mkdir(parents=True)
        shutil.copy(ROOT / "tests" / "tools" / "mutate", self.root / "tests" / "tools")
        (self.root / "tests" / "lib").mkdir()
        for path in [LIB / "guard.py", *LIB.glob("mutate_*.py")]:
            shutil.copy(path, self.root / "tests" / "lib")
        self.write(".gitignore", "/build-*/\n")
        self.git("init", "-q", "-b", "main")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "small: begin")

    def git(self, *words):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@example.org", *words], check=True)

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text, encoding="utf-8")

    def mutate(self, *words, code=0):
        """The verdicts by function and fault; how many faults were judged now."""
        environment = {k: v for k, v in os.environ.items() if k not in ("TEST_GUARD", "CC", "CXX")} | {"CC": "gcc"}
        done = subprocess.run([self.root / "tests" / "tools" / "mutate", "--plain", "--json", *words], text=True, capture_output=True,
                              env=environment, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        found = {(each["function"], each["line"], each["fault"]): each["verdict"] for each in json.loads(done.stdout)["faults"]}
        judged = sum(line.startswith(tuple(f"mutate: {word}" for word in mutate_ledger.VERDICTS)) for line in done.stderr.splitlines())
        return found, judged

    def test_verdicts_resume_and_change(self):
        first, judged = self.mutate("--folder", "net")
        self.assertEqual(first[*BELOW, "relational: < -> <="], "survived")
        self.assertEqual(first[*BELOW, "return: value < 10 -> 0"], "killed")
        self.assertEqual(first[*BELOW, "constant: 10 -> 11"], "survived")
        self.assertEqual({verdict for (function, *_), verdict in first.items() if function == "spend"}, {"not_reached"})
        self.assertEqual({verdict for (function, *_), verdict in first.items() if function == "is_odd"}, {"killed"},
                         "a test that includes the file is built with the fault, too")
        self.assertEqual(judged, len(first))

        again, judged = self.mutate("--folder", "net")
        self.assertEqual((again, judged), (first, 0), "a second run judges nothing anew")

        wide, judged = self.mutate("--folder", "net", "--wide")
        self.assertEqual(wide["spend", "value = 3;", "delete assignment: value = 3"], "killed")
        self.assertEqual(judged, sum(verdict != "killed" for verdict in first.values()), "only those that no quick test notices")

        # A line changes, and its test with it: only this line is judged, and now every fault is noticed.
        self.write("net/limit.c", PROJECT["net/limit.c"].replace("value < 10", "value < 12"))
        changed, _ = self.mutate("--change", "main", code=0)
        self.assertEqual(set(changed.values()), {"not_reached"}, "a test that fails without a fault is no judge")
        self.write("test_limit.c", PROJECT["test_limit.c"].replace("is_below(9) && !is_below(11)", "is_below(11) && !is_below(12)"))
        changed, judged = self.mutate("--change", "main", "--again")
        self.assertEqual({function for function, *_ in changed}, {"is_below"})
        self.assertEqual(set(changed.values()), {"killed"})
        self.write("test_limit.c", PROJECT["test_limit.c"].replace("is_below(9) && !is_below(11)", "is_below(11)"))
        changed, _ = self.mutate("--change", "main", "--again", code=1)
        self.assertEqual(changed["is_below", "return value < 12;", "relational: < -> <="], "survived")


if __name__ == "__main__":
    unittest.main()
