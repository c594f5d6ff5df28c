#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""include-circles.py ROOT: no pair of files NAME.c and NAME.h below src/ includes itself through
other pairs.  The last case plants a circle to prove that this test can fail."""
import os
import re
import sys
import tempfile

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)\.h"', re.MULTILINE)


def pairs(src):
    """Return which pairs below src each pair includes, by their paths without .c and .h."""
    found = {}
    for folder, _, names in os.walk(src):
        for name in names:
            unit, ext = os.path.splitext(os.path.join(folder, name))
            if ext in (".c", ".h"):
                with open(unit + ext, encoding="utf-8") as file:
                    text = file.read()
                found.setdefault(os.path.relpath(unit, src), set()).update(INCLUDE.findall(text))
    return {unit: {to for to in included if to in found and to != unit}
            for unit, included in found.items()}


def circles(graph):
    """Return the strongly connected components with more than one member (Tarjan's algorithm)."""
    index, low, stack, result = {}, {}, [], []

    def visit(unit):
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        for to in sorted(graph[unit]):
            if to not in index:
                visit(to)
            if to in stack:
                low[unit] = min(low[unit], low[to])
        if low[unit] == index[unit]:
            at = stack.index(unit)
            if len(stack) - at > 1:
                result.append(sorted(stack[at:]))
            del stack[at:]

    for unit in sorted(graph):
        if unit not in index:
            visit(unit)
    return result


def planted():
    """Return the circles in three files, two of which include each other."""
    with tempfile.TemporaryDirectory() as src:
        for name, text in (("a.c", '#include "b.h"\n'), ("a.h", ""), ("b.h", '# include "c.h"\n'),
                           ("c.c", '#include "a.h"\n'), ("c.h", ""), ("d.c", '#include "a.h"\n')):
            with open(os.path.join(src, name), "w", encoding="utf-8") as file:
                file.write(text)
        return circles(pairs(src))


def main():
    sys.setrecursionlimit(10000)
    graph = pairs(os.path.join(sys.argv[1], "src"))
    found = circles(graph)
    works = planted() == [["a", "b", "c"]]
    print("1..2")
    print("not ok" if found or not graph else "ok", "1 no_pair_includes_itself")
    for circle in found:
        print("#", " ".join(circle))
    print("ok" if works else "not ok", "2 a_planted_circle_is_found")
    return 0 if works and graph and not found else 1


sys.exit(main())
