"""Small faults in C: where one can be put, and what the text is with it. A tokenizer and the statements of the house's layout; no compiler.

Comments, texts, preprocessor lines, declarations without a value, tables, assertions and log calls are not targets.
"""
import dataclasses
import re

TOKEN = re.compile(r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<directive>(?<![^\n])[ \t]*\#(?:\\\n|[^\n])*)
    |(?P<str>(?:u8|[LuU])?"(?:\\.|[^"\\\n])*")|(?P<chr>[LuU]?'(?:\\.|[^'\\\n])*')
    |(?P<num>\.?\d(?:[eEpP][+-]|[\w.])*)|(?P<id>[A-Za-z_]\w*)
    |(?P<op><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[^\s\w])""", re.X | re.S)
CLOSERS = {")": "(", "]": "[", "}": "{"}
ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
TYPE_WORDS = set("struct union enum const volatile static extern register unsigned signed int char long short float double void bool "
                 "typedef _Alignas _Atomic _Thread_local inline".split())
NOT_CALLS = set("if for while switch return sizeof alignof _Alignof do else case goto defined".split())
SILENT = re.compile(r"^(MUSTER_ASSERT\w*|assert|static_assert|_Static_assert|MUSTER_LOG\w*|va_(start|end|copy|arg)|__builtin_unreachable)$")
WORDY = re.compile(r"(printf|_error_set|_error_format|_text_add)$")  # the order of what they print is no matter for a test
ALLOCATES = re.compile(r"^muster_mem_(alloc|alloc_zero|realloc)$")  # more than is needed, or count and size swapped, is the same to all
COMPARES = re.compile(r"^(str|strn|mem|strcase|strncase)cmp$")  # for equality: in either order
RELATIONAL = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ERRORS = ("CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED "
          "FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED").split()
OTHER_ERROR = {"MUSTER_" + name: "MUSTER_" + other for name, other in zip(ERRORS, ERRORS[1:] + ERRORS[:1])} | {"MUSTER_OK": "MUSTER_INTERNAL"}
NUMBER = re.compile(r"^(\d+)([uUlL]*)$")
SHOWN_MAX = 60


@dataclasses.dataclass(frozen=True)
class Fault:
    """One change of one file. The key (file, function, text, fault) does not know the line's number, so that it lives through moves."""
    file: str
    function: str
    text: str
    fault: str
    line: int
    start: int
    end: int
    new: str

    @property
    def key(self):
        return self.file, self.function, self.text, self.fault


class Source:
    """The tokens of a file, and their brackets."""

    def __init__(self, text):
        self.text = text
        self.kinds, self.words, self.starts, self.ends = [], [], [], []
        for found in TOKEN.finditer(text):
            if found.lastgroup not in ("skip", "directive"):
                self.kinds.append(found.lastgroup)
                self.words.append(found[0])
                self.starts.append(found.start())
                self.ends.append(found.end())
        self.pairs = {}
        open_ones = []
        for i, word in enumerate(self.words):
            if self.kinds[i] != "op":
                continue
            if word in "([{":
                open_ones.append(i)
            elif word in CLOSERS and open_ones and self.words[open_ones[-1]] == CLOSERS[word]:
                other = open_ones.pop()
                self.pairs[i], self.pairs[other] = other, i
        self.breaks = [found.start() for found in re.finditer("\n", text)]

    def line_at(self, offset):
        low, high = 0, len(self.breaks)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.breaks[middle] < offset else (low, middle)
        return low + 1

    def line_text(self, line):
        start = self.breaks[line - 2] + 1 if line > 1 else 0
        end = self.breaks[line - 1] if line <= len(self.breaks) else len(self.text)
        return " ".join(self.text[start:end].split())

    def span(self, first, end):
        """The text of the tokens first … end - 1."""
        return self.text[self.starts[first]:self.ends[end - 1]] if end > first else ""

    def functions(self):
        """Name and the braces of each body."""
        i = 0
        while i < len(self.words):
            if self.words[i] == "{" and self.kinds[i] == "op":
                before = self.pairs.get(i - 1) if i and self.words[i - 1] == ")" else None
                if before and self.kinds[before - 1] == "id":
                    yield self.words[before - 1], i, self.pairs.get(i, len(self.words) - 1)
                i = self.pairs.get(i, i)
            i += 1

    def top(self, first, end, words):
        """The indexes of these words that are in no bracket within the range."""
        i = first
        while i < end:
            if self.kinds[i] == "op" and self.words[i] in "([{" and self.pairs.get(i, end) < end:
                if self.words[i] in words:
                    yield i
                i = self.pairs[i]
            elif self.words[i] in words and self.kinds[i] in ("op", "id"):
                yield i
            i += 1


class Finder:
    """The faults of one file."""

    def __init__(self, file, text):
        self.file, self.source = file, Source(text)
        self.words, self.kinds, self.pairs = self.source.words, self.source.kinds, self.source.pairs
        self.found, self.function, self.rooms = [], "", []

    def faults(self):
        for self.function, start, end in self.source.functions():
            self.block(start, end)
        seen, told = {}, []
        for kind, first, end, new, function in sorted(self.found, key=lambda each: (each[1], each[2], each[0], each[3])):
            old = " ".join(self.source.span(first, end).split())
            line = self.source.line_at(self.source.starts[first])
            shown = old if len(old) <= SHOWN_MAX else old[:SHOWN_MAX] + "…"
            text = f"{kind}: {shown}" + ("" if kind.startswith(("delete", "negate", "never", "always", "rc not")) else f" -> {' '.join(new.split())}")
            key = (function, self.source.line_text(line), text)
            seen[key] = seen.get(key, 0) + 1
            if seen[key] > 1:
                text += f" ({seen[key]})"
            told.append(Fault(self.file, function, key[1], text, line, self.source.starts[first], self.source.ends[end - 1], new))
        return told

    def add(self, kind, first, end, new):
        self.found.append((kind, first, end, new, self.function))

    # Statements.

    def block(self, start, end):
        i = start + 1
        while i < end:
            i = self.statement(i, end)

    def header(self, i):
        """The range within the parentheses after the word at i, and what follows."""
        close = self.pairs.get(i + 1, i + 1)
        return i + 2, close, close + 1

    def end_of_simple(self, i, end):
        return next(self.source.top(i, end, {";"}), end)

    def statement(self, i, end):
        word = self.words[i]
        if word == "{":
            close = self.pairs.get(i, end)
            self.block(i, close)
            return close + 1
        if word in (";", "}", "else", "do"):
            return i + 1
        if word in ("if", "while", "switch"):
            first, close, after = self.header(i)
            (self.switch_value if word == "switch" else self.condition)(first, close, word)
            return after
        if word == "for":
            return self.for_header(i)
        if word in ("case", "default") or (self.kinds[i] == "id" and self.words[i + 1] == ":"):
            return next(self.source.top(i, end, {":"}), end) + 1
        if word in ("goto", "break", "continue"):
            return self.end_of_simple(i, end) + 1
        if word == "return":
            close = self.end_of_simple(i, end)
            self.returned(i + 1, close)
            return close + 1
        if self.kinds[i] == "id" and self.words[i + 1] == "(" and self.words[self.pairs.get(i + 1, i) + 1] == "{":
            return self.pairs[i + 1] + 1  # a loop that a macro makes
        close = self.end_of_simple(i, end)
        self.simple(i, close)
        return close + 1

    def switch_value(self, first, end, _):
        self.expression(first, end)

    def condition(self, first, end, word):
        old = self.source.span(first, end)
        if end <= first or old in ("true", "1"):
            return
        self.add("negate", first, end, f"!({old})")
        if word == "if":
            self.add("rc not checked" if re.search(r"!= MUSTER_OK$", old) else "never", first, end, "false")
            self.add("always", first, end, "true")
        else:
            self.add("never", first, end, "false")
        self.expression(first, end)
        # The same as the negated condition.
        whole = [(i, i + 1) for i in self.source.top(first, end, {"==", "!=", "!"})]
        if len(whole) == 1 and next(self.source.top(first, end, {"&&", "||", "?"}), None) is None:
            self.found = [each for each in self.found if each[1:3] != whole[0]]

    def for_header(self, i):
        first, close, after = self.header(i)
        one, two = [*self.source.top(first, close, {";"}), close, close][:2]
        if first < one:
            self.initialised(first, one) if self.is_declaration(first, one) else self.expression(first, one)
        if one + 1 < two:
            self.add("never", one + 1, two, "false")
            self.expression(one + 1, two)
        return after

    def returned(self, first, end):
        old = self.source.span(first, end)
        if end <= first:
            return
        if end - first > 1 or self.kinds[first] == "id" and old not in ("true", "false", "NULL") and old not in OTHER_ERROR:
            self.add("return", first, end, "0")
            if not re.match(r"^(muster_error_set|\(struct)", old):
                self.add("return", first, end, "1")
        elif old in OTHER_ERROR and old != "MUSTER_OK":
            self.add("return", first, end, "MUSTER_OK")
        self.expression(first, end)

    def is_declaration(self, first, end):
        words, kinds = self.words, self.kinds
        if words[first] in TYPE_WORDS:
            return True
        if kinds[first] != "id" or first + 1 >= end:
            return False
        at = first + 1
        while at < end and words[at] == "*":
            at += 1
        return at < end and kinds[at] == "id" and (at == first + 1 or at + 1 >= end or words[at + 1] in ("=", ",", "["))

    def initialised(self, first, end):
        for equals in self.source.top(first, end, {"="}):
            stop = next(self.source.top(equals + 1, end, {","}), end)
            if self.words[equals + 1] != "{":
                self.expression(equals + 1, stop)

    def simple(self, first, end):
        if end <= first or SILENT.match(self.words[first]) or self.words[first] in ("static", "typedef", "extern"):
            return
        if self.is_declaration(first, end):
            self.initialised(first, end)
            return
        if self.source.span(first, first + 3) == "(void)" and self.words[end - 1] != ")":
            return
        equals = next(self.source.top(first, end, ASSIGN | {"++", "--"}), None)
        if equals is not None:
            self.add("delete assignment", first, end, "(void)0")
            if self.words[equals] in ("+=", "-="):
                self.add("arithmetic", equals, equals + 1, "-=" if self.words[equals] == "+=" else "+=")
        elif self.words[end - 1] == ")" and self.pairs.get(end - 1, 0) > first:
            self.add("delete call", first, end, "(void)0")
        self.expression(first, end)

    # Expressions.

    def expression(self, first, end):
        self.operands(first, end, {"&&", "||"}, "||", "false")
        self.operands(first, end, {"&&", "||"}, "&&", "true")
        i = first
        while i < end:
            word, kind = self.words[i], self.kinds[i]
            if kind == "id" and SILENT.match(word) and self.words[i + 1] == "(":
                i = self.pairs.get(i + 1, i) + 1
                continue
            if word == "sizeof" and self.words[i + 1] == "(":
                i = self.pairs.get(i + 1, i) + 1
                continue
            if kind == "op":
                self.operator(i, first, end)
            elif kind == "num":
                self.number(i, first)
            elif word in ("true", "false"):
                self.add("constant", i, i + 1, "false" if word == "true" else "true")
            elif word in OTHER_ERROR and self.words[i - 1] not in ("==", "!=", "case"):
                self.add("error", i, i + 1, OTHER_ERROR[word])
            i += 1

    def operator(self, i, first, end):
        word = self.words[i]
        if word in RELATIONAL and i > first:
            self.add("relational", i, i + 1, RELATIONAL[word])
        elif word in ("+", "-") and i > first and self.is_binary(i):
            self.add("arithmetic", i, i + 1, "-" if word == "+" else "+")
            if NUMBER.match(self.words[i + 1]) and (i + 2 >= end or self.words[i + 2] not in ("*", "/", "%")):
                self.add("arithmetic", i, i + 2, "")
        elif word == "|" and i > first:
            self.flag(i, end)
        elif word == "!" and self.words[i + 1] != "(":
            self.add("negation dropped", i, i + 1, "")
        elif word == "(" and i > 0 and self.kinds[i - 1] == "id" and self.words[i - 1] not in NOT_CALLS and not WORDY.search(self.words[i - 1]):
            if ALLOCATES.match(self.words[i - 1]):
                self.rooms.append((i, self.pairs.get(i, i + 1)))
            self.arguments(i + 1, self.pairs.get(i, i + 1), self.words[i - 1])
        elif word == "(":
            for op, neutral in (("||", "false"), ("&&", "true")):
                self.operands(i + 1, self.pairs.get(i, i + 1), {"&&", "||"}, op, neutral)

    def is_binary(self, i):
        before = self.words[i - 1]
        if before == ")":
            inside = self.source.span(self.pairs.get(i - 1, i - 1) + 1, i - 1)
            return not re.match(r"^(unsigned|signed|int|char|long|short|\w+_t|double|float|(struct|enum) \w+)[ *]*$", inside)
        return before == "]" or self.kinds[i - 1] in ("id", "num") and before != "return"

    def flag(self, i, end):
        """One of several flags is left out."""
        if self.kinds[i + 1] == "id" and (i + 2 >= end or self.words[i + 2] in ("|", ",", ")", ";")) and self.words[i + 1].isupper():
            self.add("flag dropped", i, i + 2, "")
        if self.kinds[i - 1] == "id" and self.words[i - 1].isupper() and self.words[i - 2] != "|":
            self.add("flag dropped", i - 1, i + 1, "")

    def number(self, i, first):
        found = NUMBER.match(self.words[i])
        if not found or self.words[i - 1] in ("{", "<<", ">>") and self.words[i + 1] in ("}", ","):
            return
        value, suffix = int(found[1]), found[2]
        if not any(start < i < end for start, end in self.rooms):
            self.add("constant", i, i + 1, f"{value + 1}{suffix}")
        if value > 1:
            self.add("constant", i, i + 1, f"0{suffix}")
        elif value == 1 and not (i > first and self.words[i - 1] in ("+", "-")):  # dropping "+ 1" does the same
            self.add("constant", i, i + 1, f"0{suffix}")

    def operands(self, first, end, splitters, op, neutral):
        """One operand of a && or || is left out: the neutral constant stands in its place."""
        bounds = {"||"} if op == "||" else splitters
        stops = bounds | {",", "?", ":", ";"} | ASSIGN
        cuts = [first - 1, *self.source.top(first, end, stops), end]
        ops = [self.words[cut] if first <= cut < end else "" for cut in cuts]
        for at in range(len(cuts) - 1):
            if op in (ops[at], ops[at + 1]) and cuts[at] + 1 < cuts[at + 1]:
                self.add("operand", cuts[at] + 1, cuts[at + 1], neutral)

    def arguments(self, first, end, callee):
        """Each argument's own operators of logic, and adjacent arguments swapped."""
        cuts = [first - 1, *self.source.top(first, end, {","}), end]
        spans = [(a + 1, b) for a, b in zip(cuts, cuts[1:])]
        for op, neutral in (("||", "false"), ("&&", "true")):
            self.operands(first, end, {"&&", "||"}, op, neutral)
        is_of_equals = COMPARES.match(callee) and self.words[end + 1] in ("==", "!=") and self.words[end + 2] == "0"
        pairs = list(zip(spans, spans[1:]))
        for (a, b), (c, d) in [] if ALLOCATES.match(callee) else pairs[1:] if is_of_equals else pairs:
            one, two = self.source.span(a, b), self.source.span(c, d)
            if one and two and one != two and "str" not in (self.kinds[a], self.kinds[c]) and not TYPE_WORDS & {self.words[a], self.words[c]}:
                self.add("swap", a, d, f"{two}, {one}")


def faults_of(file, text):
    """All faults of the product file with this text, in its order; an operand that two passes find is one fault."""
    unique = {}
    for fault in Finder(file, text).faults():
        unique.setdefault((fault.start, fault.end, fault.new), fault)
    return list(unique.values())


def apply(text, fault):
    return text[:fault.start] + fault.new + text[fault.end:]
