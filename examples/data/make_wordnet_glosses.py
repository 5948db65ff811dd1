#!/usr/bin/env python3
"""Makes wordnet-glosses.txt from the noun file of WordNet 3.0 (Debian: wordnet-base):

    examples/data/make_wordnet_glosses.py /usr/share/wordnet/data.noun >examples/data/wordnet-glosses.txt

One line for each animal, plant, body part and food: its name, then the words of its definition. The file begins with WordNet's notice."""
import collections
import re
import sys

LEXICOGRAPHER_FILES = {"05", "08", "13", "20"}  # animal, body, food, plant
SEEN_MIN = 10  # definitions that a word must be in
WORDS_MIN = 3  # words that a definition must have left
STOP_WORDS = set("""a an and any are as at be been being between but by can could esp especially etc for from had has have having her his in
into is it its made make may more most not of often on one or other some such than that the their them these they this those to used using
usually very was were when where which who whom whose with""".split())


def synsets(file):
    """(name, words of its definition) of each noun of these files. The notice's lines begin with blanks."""
    for line in file:
        if line.startswith("  "):
            continue
        head, gloss = line.split(" | ", 1)
        fields = head.split()
        if fields[1] in LEXICOGRAPHER_FILES:
            definition = gloss.split('; "', 1)[0].lower()
            words = (word for word in re.findall("[a-z]+", definition) if len(word) > 1 and word not in STOP_WORDS)
            yield fields[4], list(dict.fromkeys(words))


def notice(file):
    """Its lines, without their numbers."""
    for line in file:
        if not line.startswith("  "):
            return
        yield re.sub(r"^  \d+ ?", "", line).rstrip()


def main():
    with open(sys.argv[1], encoding="latin-1") as file:
        lines = list(file)
    rows = list(synsets(lines))
    seen = collections.Counter(word for _, words in rows for word in words)
    print("# Names and words of definitions of WordNet 3.0, made by make_wordnet_glosses.py. WordNet's notice:\n#")
    for line in notice(lines):
        print(f"# {line}".rstrip())
    for name, words in rows:
        kept = [word for word in words if seen[word] >= SEEN_MIN]
        if len(kept) >= WORDS_MIN:
            print(name, *kept)


main()
