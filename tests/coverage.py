#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""coverage.py SUMMARY.json PERCENT FOLDER...: print covered lines per folder of gcovr's summary.

Fails if a named folder is below the percentage or has no lines at all.
"""
import collections
import json
import os
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        files = json.load(f)["files"]
    least = float(sys.argv[2])
    wanted = sys.argv[3:]

    covered = collections.Counter()
    total = collections.Counter()
    for file in files:
        name = file["filename"]
        print("{:6.1f} %  {:5} of {:5}  {}".format(
            100.0 * file["line_covered"] / max(file["line_total"], 1),
            file["line_covered"], file["line_total"], name))
        # A folder includes everything below it.
        folder = os.path.dirname(name)
        while folder:
            covered[folder] += file["line_covered"]
            total[folder] += file["line_total"]
            folder = os.path.dirname(folder)

    bad = []
    print()
    for folder in sorted(set(total) | set(wanted)):
        percent = 100.0 * covered[folder] / max(total[folder], 1)
        low = folder in wanted and percent < least
        print("{:6.1f} %  {:5} of {:5}  {}{}".format(
            percent, covered[folder], total[folder], folder,
            f"  BELOW {least:g} %" if low else ""))
        if low:
            bad.append(folder)
    return 1 if bad else 0


sys.exit(main())
