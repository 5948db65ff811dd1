"""docs/python-reference.md names what the package has."""
import re

import conftest
import reference

NAME = re.compile(r"^(?:- |### )`(\w+)", re.M)


def test_all_that_the_page_names_is_there():
    page = (conftest.SOURCE / "docs/python-reference.md").read_text(encoding="utf-8")

    named, there = (set(NAME.findall(text)) for text in (page, reference.text()))
    assert named <= there, f"{named - there}: run tests/python/reference.py > docs/python-reference.md"
    assert {"reduce_scatter", "init_process_group", "rehearse", "tfrecord", "pull_range"} <= named
