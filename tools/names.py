#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""names.py [--max N] [FOLDER...]: list functions of C that two files or more define.

Grep finds the definition of a name that only one file defines.  Tests and main() are ignored.  A
function of which one file has a variant for other kernels or processors counts once, because the
files of one table implement it.  With --max N the status is 1 for more than N names.
"""
import collections
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ["src", "kv", "serve", "usrbio", "compat", "cli", "tools", "bench"]
# In kernel style, a definition is an unindented line with attributes, types and the name, followed
# by a body.
DEFINITION = re.compile(
    r"^(?!static_assert|_Static_assert|typedef|struct \w+ \{|union|enum|#|extern)"
    r"[A-Za-z_][\w \t*]*?\b\*?(\w+)\([^;{}]*\)[^;{}=]*\n\{",
    re.M,
)
KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "main", "__attribute__"}


def functions(path):
    with open(path, encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    text = re.sub(r"__attribute__\(\(.*?\)\)\s*", "", text)
    return {name for name in DEFINITION.findall(text) if name not in KEYWORDS}


def main():
    args = sys.argv[1:]
    most = None
    if args[:1] == ["--max"]:
        most, args = int(args[1]), args[2:]
    where = collections.defaultdict(list)
    for folder in args or FOLDERS:
        for at, _, files in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(files):
                if name.endswith((".c", ".h")):
                    path = os.path.join(at, name)
                    for fn in functions(path):
                        where[fn].append(os.path.relpath(path, ROOT))
    twice = {fn: paths for fn, paths in where.items() if len(paths) > 1}
    for fn, paths in sorted(twice.items(), key=lambda e: (-len(e[1]), e[0])):
        print("%3d %s: %s" % (len(paths), fn, " ".join(sorted(paths))))
    print("%d names are defined in two files or more" % len(twice))
    return 1 if most is not None and len(twice) > most else 0


if __name__ == "__main__":
    sys.exit(main())
