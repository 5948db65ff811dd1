"""The ledger of tests/tools/mutate: which fault was judged how; and the reviewed list of faults that change nothing."""
import collections
import os
import pathlib

COLUMNS = ("file", "function", "line", "fault", "verdict", "test")
EQUIVALENT_COLUMNS = (*COLUMNS[:4], "reason")
VERDICTS = ("killed", "survived", "not_reached", "equivalent")


def read_table(path, columns):
    """The rows below the heading; a file that is not there is empty."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or tuple(lines[0].split("\t")) != columns:
        raise SystemExit(f"mutate: the first line of {path} must be the columns {', '.join(columns)}, separated by tabs")
    rows = [tuple(line.split("\t")) for line in lines[1:] if line]
    wrong = next((number for number, row in enumerate(rows, 2) if len(row) != len(columns)), None)
    if wrong:
        raise SystemExit(f"mutate: line {wrong} of {path} must have {len(columns)} columns ({', '.join(columns)}), separated by tabs")
    return rows


class Ledger:
    """Verdicts by the key of a fault; every judgement is written at once, by rename, so that an end at any time leaves the file whole."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.path = folder / "ledger.tsv"
        # A merge may leave two rows of one fault (.gitattributes): the first, which is the killed one, counts.
        self.rows = {row[:4]: row[4:] for row in reversed(read_table(self.path, COLUMNS))}
        self.reasons = {row[:4]: row[4] for row in read_table(folder / "equivalent.tsv", EQUIVALENT_COLUMNS)}
        self.rows |= {key: ("equivalent", "reviewed") for key in self.rows if key in self.reasons}

    def reason(self, fault):
        """Why a reviewer found that this fault changes nothing, or None."""
        return self.reasons.get(fault.key)

    def verdict(self, fault):
        """(verdict, test), or None: not judged yet."""
        if self.reason(fault) is not None:
            return "equivalent", "reviewed"
        return self.rows.get(fault.key)

    def record(self, fault, verdict, test):
        self.rows[fault.key] = (verdict, test)
        self.write()

    def prune(self, files, faults):
        """Forget the rows of these files whose fault can no longer be put anywhere."""
        known = {fault.key for fault in faults}
        gone = [key for key in self.rows if key[0] in files and key not in known]
        for key in gone:
            del self.rows[key]
        if gone:
            self.write()

    def write(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        lines = ["\t".join(COLUMNS), *sorted("\t".join(key + value) for key, value in self.rows.items())]
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.replace(part, self.path)


def count(pairs):
    """Folder -> verdict -> how many; pairs: file and verdict."""
    table = collections.defaultdict(lambda: dict.fromkeys(VERDICTS, 0))
    for file, verdict in pairs:
        table[file.split("/")[0]][verdict] += 1
    return dict(sorted(table.items()))


def format_table(table):
    """The table as text; the last column: killed of those that some test reaches and that change something."""
    total = {verdict: sum(row[verdict] for row in table.values()) for verdict in VERDICTS}
    lines = ["| folder | killed | survived | not reached | equivalent | killed of reached |", "| --- | --- | --- | --- | --- | --- |"]
    for folder, row in [*table.items(), ("all", total)]:
        reached = row["killed"] + row["survived"]
        share = f"{100 * row['killed'] / reached:.0f} %" if reached else "-"
        lines.append("| " + " | ".join([folder, *(str(row[verdict]) for verdict in VERDICTS), share]) + " |")
    return "\n".join(lines)
