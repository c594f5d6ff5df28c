#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""listed.py ROOT BUILD: the build installs exactly the files in tests/packaging/installed, and each
file goes into one Debian package or is named in not-installed.  Nothing is installed: meson lists
what would be."""
import fnmatch
import glob
import json
import os
import re
import sys

ROOT, BUILD = sys.argv[1:]
FAILED = []


def told(what):
    with open(f"{BUILD}/meson-info/intro-{what}.json", encoding="utf-8") as file:
        return json.load(file)


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]


def installed():
    """Return the files in the form of the list: below the prefix, with Debian's library folder as
    lib."""
    options = {option["name"]: option["value"] for option in told("buildoptions")}
    for path in told("installed").values():
        path = os.path.relpath(path, options["prefix"])
        if path.startswith(options["libdir"] + "/"):
            path = "lib" + path[len(options["libdir"]):]
        yield re.sub(r"\.so\.\d+\.\d+\.\d+$", ".so.VERSION", path)


def patterns():
    """Return (pattern, target folder or None) for each line."""
    for path in glob.glob(f"{ROOT}/packaging/debian/*install*"):
        package = os.path.basename(path).removesuffix(".install")
        for line in lines(path):
            yield package, re.sub("^usr/", "", line.split()[0]).replace("lib/*/", "lib/", 1)


def goes(path, pattern):
    """Return whether a pattern takes the file; dh_install takes a folder with everything below it.
    """
    parts = pattern.count("/") + 1
    return fnmatch.fnmatchcase("/".join(path.split("/")[:parts]), pattern)


def result(number, name, problems):
    print(f"{'not ' if problems else ''}ok {number} {name}")
    for problem in problems:
        print(f"# {problem}")
    FAILED.extend(problems)


have = set(installed())
want = set(lines(f"{ROOT}/tests/packaging/installed"))
result(1, "each_installed_file_is_listed",
       [f"{path} is installed and not listed" for path in sorted(have - want)] +
       [f"{path} is listed and not installed" for path in sorted(want - have)])

rules = list(patterns())
wrong = []
for path in sorted(have):
    packages = [package for package, pattern in rules if goes(path, pattern)]
    if len(packages) != 1:
        wrong.append(f"{path} is in {' and '.join(packages) or 'no package'}")
wrong += [f"{package}.install: nothing is {pattern}" for package, pattern in rules
          if not any(goes(path, pattern) for path in have)]
result(2, "each_installed_file_is_in_one_package", wrong)
print("1..2")
sys.exit(1 if FAILED else 0)
