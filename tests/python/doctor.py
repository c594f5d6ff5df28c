# SPDX-License-Identifier: MIT
"""The report about the machine."""
import json

from tap import case, data, eq, file, gives, run, true

import penstock


@case
def of_the_machine():
    report = penstock.doctor()
    eq(sorted(report), ["devices", "io", "library", "version"])
    eq(report["version"], penstock.version())
    eq(report["devices"], penstock.devices())
    kinds = [device["kind"] for device in report["devices"]]
    eq(kinds[0], "host")
    true("soft" in kinds)
    eq({check["name"] for check in report["io"]}, {"io_uring", "threads"})
    for check in report["io"]:
        true(check["state"] in ("ok", "missing", "unneeded", "unknown"))
    json.dumps(report)


@case
def of_a_file():
    report = penstock.doctor(file("content", data(10000)))
    eq(report["file"]["size"], 10000)
    paths = {path["path"]: path for path in report["paths"]["host"]}
    true(paths["cached"]["state"] in ("possible", "proven"), repr(paths))
    for path in paths.values():
        true(path["why"] or path["state"] != "impossible", repr(path))
    true(report["gds"])
    json.dumps(report)
    gives(FileNotFoundError, penstock.doctor, "/nothing/there")


run()
