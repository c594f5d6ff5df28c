#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sum the TAP cases of all programs that meson ran.

tap-sum.py TESTLOG.json... prints the cases that failed with what they said, the cases that
were skipped with their reason, and as its last line "N passed, N failed, N skipped".  A
program that crashed, timed out or ended before its plan counts as one failure more.  Of several
logs each one's name stands before its cases.
"""
import json
import os
import re
import sys

CASE = re.compile(r"(not )?ok\b\s*(\d*)\s*-?\s*([^#]*)(?:#\s*(SKIP)\S*\s*(.*))?$", re.I)
PLAN = re.compile(r"1\.\.(\d+)\s*(?:#\s*SKIP\S*\s*(.*))?$", re.I)


def program(run):
    """Yield (what, case, text) for one program; what is passed, failed or skipped."""
    name = run["name"].split(" / ")[-1]
    out = run.get("stdout", "")
    plan = None
    cases = failed = 0
    notes = []
    for line in out.splitlines():
        line = line.rstrip()
        case = CASE.match(line)
        planned = PLAN.match(line)
        if case:
            cases += 1
            label = f"{name}: {case[3].strip() or case[2] or cases}"
            if case[4]:
                yield "skipped", label, case[5].strip() or "no reason given"
            elif case[1]:
                failed += 1
                notes = []
                yield "failed", label, notes
            else:
                notes = []
                yield "passed", label, ""
        elif planned:
            plan = int(planned[1])
            if plan == 0:
                yield "skipped", name, planned[2] or "no reason given"
        elif line.startswith("#"):
            notes.append(line[1:].strip())
        elif line.startswith("Bail out!"):
            failed += 1
            yield "failed", name, [line]

    end = run["result"]
    tail = (out + "\n" + run.get("stderr", "")).strip().splitlines()[-60:]
    if end in ("TIMEOUT", "INTERRUPT"):
        yield "failed", name, [f"did not end in time ({end.lower()})"] + tail
    elif plan is None:
        yield "failed", name, [f"ended without a plan, status {run['returncode']}"] + tail
    elif plan != cases:
        yield "failed", name, [f"planned {plan} cases and ran {cases}"] + tail
    elif run["returncode"] != 0 and not failed:
        yield "failed", name, [f"all cases passed, but the status is {run['returncode']}"] + tail


def cases(path):
    """Yield what program() does, of all programs in one log."""
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            yield from program(json.loads(line))


def main():
    count = {"passed": 0, "failed": 0, "skipped": 0}
    failures = []
    skips = []
    logs = sys.argv[1:]
    for path in logs:
        where = os.path.basename(path)[:-len(".json")] + ": " if len(logs) > 1 else ""
        for what, case, text in cases(path):
            count[what] += 1
            if what == "failed":
                failures.append((where + case, text))
            elif what == "skipped":
                skips.append((where + case, text))
    for case, why in skips:
        print(f"skipped {case}: {why}")
    for case, notes in failures:
        print(f"FAILED {case}")
        for note in notes:
            print(f"    {note}")
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**count))
    return 1 if count["failed"] or not count["passed"] else 0


sys.exit(main())
