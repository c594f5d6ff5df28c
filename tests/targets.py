#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Print what ninja must build for some tests.

targets.py BUILD [--suite SUITE]... [--no-suite SUITE]... [TEST...] prints the files in the build
folder that these tests use.  An unknown test or suite is an error, which suggests similar names.
"""
import difflib
import json
import os
import subprocess
import sys


def ask(build, what):
    text = subprocess.run(["meson", "introspect", "--" + what, build], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return json.loads(text)


def main():
    build, words = sys.argv[1], sys.argv[2:]
    tests, suites = {}, {}
    for test in ask(build, "tests"):
        tests.setdefault(test["name"], []).append(test)
        for suite in test["suite"]:
            suites.setdefault(suite.rsplit(":", 1)[-1], []).append(test)
    chosen, left_out, named = [], [], False
    while words:
        kind, of, to = "test", tests, chosen
        name = words.pop(0)
        if name in ("--suite", "--no-suite"):
            kind, of, to = "suite", suites, chosen if name == "--suite" else left_out
            name = words.pop(0)
        named |= to is chosen
        if name not in of:
            alike = difflib.get_close_matches(name, of) or sorted(of)
            sys.exit(f"there is no {kind} '{name}', but: {' '.join(alike)}")
        to += of[name]
    if not named:
        chosen = sum(tests.values(), [])
    chosen = [test for test in chosen if test not in left_out]

    files, targets = {}, {}
    for target in ask(build, "targets"):
        targets[target["id"]] = target["filename"]
        for file in target["filename"]:
            files[os.path.realpath(file)] = target["id"]
            if os.path.basename(file) in ("guard", "fusefs"):  # every test may use these
                targets.setdefault("always", []).append(file)

    wanted = {"always"}
    for test in chosen:
        wanted.update(test["depends"])
        # Some files are only named in an argument or a variable.
        for word in test["cmd"] + list(test["env"].values()):
            wanted.update(files[os.path.realpath(path)] for path in word.split(":")
                          if os.path.realpath(path) in files)
    root = os.path.realpath(build)
    print("\n".join(sorted({os.path.relpath(file, root)
                            for target in wanted for file in targets.get(target, [])})))


main()
