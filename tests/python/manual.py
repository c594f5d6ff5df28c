# SPDX-License-Identifier: MIT
"""The examples in docs/PYTHON.md and README.md run in order, as printed."""
import importlib
import os
import re

from tap import Skip, case, eq, numpy, run, torch, true, work

EXAMPLES = []
for name in ("docs/PYTHON.md", "README.md"):
    with open(f"{os.environ['ROOT']}/{name}", encoding="utf-8") as f:
        EXAMPLES += re.findall(r"^```python\n(.*?)^```$", f.read(), re.M | re.S)
with open(f"{os.environ['ROOT']}/python/README.md", encoding="utf-8") as f:
    FOR_PYPI = re.findall(r"^```python\n(.*?)^```$", f.read(), re.M | re.S)
os.chdir(work)
NAMES = {}


def example(number):
    if "numpy" in EXAMPLES[number]:
        numpy()
    if "torch" in EXAMPLES[number]:
        torch()
    if "dcp" in EXAMPLES[number]:
        try:
            importlib.import_module("torch.distributed.checkpoint").save
        except (ImportError, AttributeError):
            raise Skip("torch.distributed.checkpoint as of torch 2.3") from None
    exec(compile(EXAMPLES[number], f"example {number + 1}", "exec"), NAMES)


def make(number):
    def function():
        out = []
        NAMES["print"] = lambda *what: out.append(" ".join(map(str, what)))
        example(number)
        NAMES.setdefault("said", []).extend(out)
    function.__name__ = f"example_{number + 1}"
    return function


# Two examples need torch; they come before the last six, with one that makes the model for these.
for place in range(len(EXAMPLES) - 6):
    case(make(place))


@case
def models_and_doctor():
    numpy()
    for number in (-6, -2, -1):
        make(number + len(EXAMPLES))()
    true(NAMES["said"][-1].startswith("64 "), NAMES["said"][-1])


for place in range(len(EXAMPLES) - 5, len(EXAMPLES) - 2):
    case(make(place))


@case
def example_for_pypi():
    eq(len(FOR_PYPI), 1)
    said = []
    exec(compile(FOR_PYPI[0], "python/README.md", "exec"),
         {"print": lambda *what: said.append(" ".join(map(str, what)))})
    true(said[0].startswith("10000 bytes by "), said)


@case
def what_they_print():
    said = "\n".join(NAMES["said"])
    for text in ("1000 bytes by ", "why not by a better path: ", "prefix <Result 4096 bytes",
                 "None <Result 512 bytes", "10000", "digits: b'0123456789'"):
        true(text in said, f"{text} is not in {said}")
    eq(len(EXAMPLES), 14)


run()
