#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sum the TAP cases of all programs that meson ran.

tap-sum.py [--elsewhere] TESTLOG.json... prints failed cases with their output, skipped cases with
their reason, and as its last line "N passed, N failed, N skipped".  A program that crashed, timed
out or ended before its plan counts as one more failure, and so does a skip that tests/skips does
not allow.  The conditions in tests/skips are evaluated on this machine; with --elsewhere the logs
are another machine's, and a reason only has to be listed.  With several logs, each log's name
precedes its cases.
"""
import fnmatch
import json
import os
import re
import subprocess
import sys

CASE = re.compile(r"(not )?ok\b\s*(\d*)\s*-?\s*([^#]*)(?:#\s*(SKIP)\S*\s*(.*))?$", re.I)
PLAN = re.compile(r"1\.\.(\d+)\s*(?:#\s*SKIP\S*\s*(.*))?$", re.I)


class Skips:
    """The skips that tests/skips allows."""

    def __init__(self, path, elsewhere):
        self.root = os.path.dirname(os.path.dirname(os.path.abspath(path)))
        self.elsewhere = elsewhere
        self.commands = {"always": "true"}
        self.rules = []
        self.answers = {}
        with open(path, encoding="utf-8") as lines:
            for nr, line in enumerate(lines, 1):
                line = line.strip()
                if not line or line.startswith("#"):
                    continue
                name, colon, rest = line.partition(": ")
                if name.startswith("when "):
                    self.commands[name[len("when "):]] = rest
                elif colon and name in self.commands:
                    reason, _, cases = rest.partition(" @ ")
                    self.rules.append((name, reason.strip(), cases.strip() or "*"))
                else:
                    sys.exit(f"{path}:{nr}: neither a condition nor a skip under one: {line}")

    def holds(self, name, reason, log):
        """Return whether the condition holds: something is missing."""
        command = self.commands[name]
        env = dict(os.environ, REASON=reason, LOG=log)
        key = (command, reason if "REASON" in command else "", log if "LOG" in command else "")
        if key not in self.answers:
            self.answers[key] = subprocess.run(
                ["sh", "-c", command], cwd=self.root, env=env, check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL).returncode == 0
        return self.answers[key]

    def objection(self, case, reason, log):
        """Return None, or why the skip is not allowed."""
        named = [name for name, pattern, cases in self.rules
                 if fnmatch.fnmatchcase(reason, pattern) and fnmatch.fnmatchcase(case, cases)]
        if not named:
            return "tests/skips has no line for this"
        if self.elsewhere or any(self.holds(name, reason, log) for name in named):
            return None
        return f"tests/skips allows it for {', '.join(named)}, which is not so here"


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
    """Yield the results of program() for all programs in a log."""
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            yield from program(json.loads(line))


def main():
    count = {"passed": 0, "failed": 0, "skipped": 0}
    failures = []
    skipped = []
    logs = [arg for arg in sys.argv[1:] if arg != "--elsewhere"]
    skips = Skips(os.path.join(os.path.dirname(os.path.abspath(__file__)), "skips"),
                  "--elsewhere" in sys.argv)
    for path in logs:
        where = os.path.basename(path)[:-len(".json")] + ": " if len(logs) > 1 else ""
        for what, case, text in cases(path):
            objection = skips.objection(case, text, path) if what == "skipped" else None
            if objection:
                what, text = "failed", [f"skipped: {text}", objection]
            count[what] += 1
            if what == "failed":
                failures.append((where + case, text))
            elif what == "skipped":
                skipped.append((where + case, text))
    for case, why in skipped:
        print(f"skipped {case}: {why}")
    for case, notes in failures:
        print(f"FAILED {case}")
        for note in notes:
            print(f"    {note}")
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**count))
    return 1 if count["failed"] or not count["passed"] else 0


sys.exit(main())
