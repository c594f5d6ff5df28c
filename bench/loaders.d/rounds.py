# SPDX-License-Identifier: MIT
"""Run rounds, with each loader in a new process and in changing order, and collect the results."""
import statistics

import cache
from process import Broken, Process


class Row:
    """One loader in one state of the page cache."""

    def __init__(self, loader, state):
        self.loader = loader
        self.state = state  # requested state
        self.parts = []  # part in memory before each load
        self.loads = []  # per process: the answers to its loads
        self.starts = []
        self.about = {}  # description by the last process
        self.verified = 0  # number of verified loads
        self.wrong = False
        self.failure = ""

    @property
    def done(self):
        return bool(self.loads) and not self.failure

    @property
    def held(self):
        """Return true if the files were in the row's state before every load."""
        return all(cache.held(self.state, part) for part in self.parts)

    @property
    def name(self):
        """Return the state's name, or another one if the state was not held."""
        return self.state if self.held else "not " + self.state

    @property
    def why(self):
        """Return what was wrong with the state."""
        if self.held:
            return ""
        worst = min(self.parts) if self.state == "memory" else max(self.parts)
        return cache.why_not(self.state, worst)

    def firsts(self):
        return [loads[0] for loads in self.loads]

    def later(self):
        return [load for loads in self.loads for load in loads[1:]]


def compare(answer, sums):
    """Return "", or what is wrong with the bytes that were read back."""
    got = answer.get("tensors", {})
    for name, (length, crc) in sums.items():
        if name not in got:
            return f"{name} was not delivered"
        if got[name][0] != length:
            return f"{name} has {got[name][0]} bytes and not {length}"
        if got[name][1] != crc:
            return f"{name} has wrong bytes"
    return ""


def one_process(row, plan):
    """Run one loader's turn in one round."""
    loads = []
    with Process(row.loader.command, plan.files, plan.patience) as process:
        row.about = process.ready()
        for index in range(plan.loads):
            row.parts.append(cache.prepare(row.state, plan.files))
            verify = plan.verify == "every" or index == 0 and (plan.verify == "first" or
                                                               not row.loads)
            answer = process.load(verify)
            if verify:
                wrong = compare(answer, plan.sums)
                if wrong:
                    row.wrong = True
                    raise Broken("wrong bytes: " + wrong)
                row.verified += 1
            answer.pop("tensors", None)
            loads.append(answer)
        process.end()
    row.starts.append(row.about["start_s"])
    row.loads.append(loads)


def one_round(rows, turn, plan, say):
    """Run one round; skip loaders that have failed in a state."""
    for state in dict.fromkeys(row.state for row in rows):
        order = [row for row in rows if row.state == state]
        order = order[turn % len(order):] + order[:turn % len(order)]
        for row in order:
            if row.failure:
                continue
            say(f"round {turn + 1} of {plan.rounds}, {state}: {row.loader.name}")
            try:
                one_process(row, plan)
            except Broken as error:
                row.failure = str(error)


def take_turns(plan, rows, say):
    """Run all rounds.  After a signal, return what was measured until then."""
    try:
        for turn in range(plan.rounds):
            one_round(rows, turn, plan, say)
            plan.done += 1
    except SystemExit as end:
        plan.stopped = end.code


def spread(loads, length):
    """Return median, lowest and highest of some loads."""
    if not loads:
        return None
    seconds = [load["seconds"] for load in loads]
    processor = [load["cpu_s"] for load in loads]
    host = [load["host_bytes"] for load in loads if "host_bytes" in load]
    alloc = [load["alloc_s"] for load in loads if "alloc_s" in load]
    median = statistics.median(seconds)
    return {"seconds": seconds, "median_s": median, "lowest_s": min(seconds),
            "highest_s": max(seconds), "gb_per_s": length / median / 1e9,
            "cpu_s": statistics.median(processor),
            "cpu_s_per_10gb": statistics.median(processor) / length * 1e10,
            "host_bytes": statistics.median(host) if host else None,
            "alloc_s": alloc}


def result(row, length):
    """Return a row's results for JSON, table and chart."""
    found = {"loader": row.loader.name, "ours": row.loader.ours, "state": row.name,
             "asked": row.state, "state_text": row.why,
             "status": "done" if row.done else "wrong" if row.wrong else "failed",
             "text": row.failure, "versions": row.about.get("versions", row.loader.versions)}
    if not row.done:
        return found
    firsts = [load["first_s"] for load in row.firsts() if load.get("first_s") is not None]
    found.update({
        "path": row.loads[-1][0].get("path", ""),
        "new": spread(row.firsts(), length),
        "warm": spread(row.later(), length),
        "start_s": statistics.median(row.starts),
        "first_tensor_s": statistics.median(firsts) if firsts else None,
        "verified_loads": row.verified, "in_memory": [min(row.parts), max(row.parts)]})
    return found
