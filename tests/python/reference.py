#!/usr/bin/env python3
"""Prints docs/python-reference.md: the docstrings of the package. usage: PYTHONPATH=build/python reference.py > docs/python-reference.md"""
import ast
import os
import pathlib
import textwrap

SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2])) / "python" / "muster"
WIDTH = 118
HEAD = """# Python: reference

What the package has, in the words of its docstrings; `tests/python/reference.py` makes this page of them.
[python.md](python.md) is the guide, `python/muster/_muster.pyi` has the types of arguments.
"""
C_CLASSES = {"muster.Strategy": ("Strategy", "Split", "MicroBatches", "Tensor", "Request")}
FILES = [  # module, file, names
    ("muster.Replicas", "replicas.py", ("Replicas", "Replica")),
    ("muster.Elastic", "elastic.py", ("Elastic",)),
    ("muster.data", "data.py", ("Dataset", "lines", "csv", "fixed", "tfrecord", "numbers")),
    ("muster.torch", "torch/__init__.py", ("Elastic",)),
    ("muster.torch", "torch/ddp.py", ("DistributedDataParallel",)),
    ("muster.torch.backend", "torch/backend.py", ("init_process_group",)),
    ("muster.jax", "jax.py", ("all_reduce", "pmean", "broadcast", "jit", "errors", "Elastic")),
    ("muster.params", "params.py", ("Client", "Table", "Request")),
    ("muster.publication", "publication.py", ("Publisher", "Reader", "Version")),
]


def _fill(text, indent=""):
    return textwrap.fill(" ".join(text.split()), WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _prose(text):
    """Paragraphs of a docstring; indented ones are programs."""
    blocks = (text or "").strip().split("\n\n")
    return "\n\n".join("```py\n" + textwrap.dedent(each) + "\n```" if each.startswith("    ") else _fill(each) for each in blocks if each)


def _item(signature, text):
    return _fill(f"- `{signature}`: {text or ''}".rstrip(": "), "  ")


def _c_class(name):
    import muster._muster as module
    made = getattr(module, name)
    yield _fill(f"**{name}**: {made.__doc__}")
    for each in sorted(vars(made)):
        value = vars(made)[each]
        if each.startswith("_"):
            continue
        yield _item(each + (getattr(value, "__text_signature__", None) or "").replace("($self, /, ", "(").replace("($self, ", "("), value.__doc__)


def _exceptions():
    import muster._muster as module
    for name in sorted(vars(module)):
        each = getattr(module, name)
        if isinstance(each, type) and issubclass(each, module.Error) and each is not module.Error:
            yield f"- `{name}`: {each.code}" + "".join(f", also {base.__name__}" for base in each.__bases__ if not base.__name__ == "Error")


def _signature(node):
    return f"{node.name}({ast.unparse(node.args)})".replace("(self, ", "(").replace("(self)", "()")


def _is_shown(node):
    return isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and ast.get_docstring(node)


def _python_name(tree, name):
    node = next(each for each in tree.body if isinstance(each, (ast.ClassDef, ast.FunctionDef)) and each.name == name)
    if isinstance(node, ast.FunctionDef):
        yield f"### `{_signature(node)}`"
        yield _prose(ast.get_docstring(node))
        return
    made = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    yield f"### `{name}{_signature(made).removeprefix('__init__') if made else '(…)'}`"
    yield _prose(ast.get_docstring(node))
    methods = [_item(_signature(each) if not each.decorator_list else each.name, ast.get_docstring(each)) for each in node.body if _is_shown(each)]
    if methods:
        yield "\n".join(methods)


def text():
    parts = [HEAD.rstrip()]
    package = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    parts.append("## muster.Strategy")
    strategy = next(each for each in package.body if isinstance(each, ast.ClassDef) and each.name == "Strategy")
    parts.append(_prose(ast.get_docstring(strategy)))
    for name in C_CLASSES["muster.Strategy"]:
        lines = list(_c_class(name))
        parts += [lines[0], "\n".join(lines[1:])]
    parts += ["## Exceptions", "All are muster.Error; `code` is the number in include/muster/status.h.", "\n".join(_exceptions())]
    last = None
    for module, file, names in FILES:
        if module != last:
            parts.append(f"## {module}")
        last = module
        tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
        for name in names:
            parts += list(_python_name(tree, name))
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    print(text(), end="")
