# SPDX-License-Identifier: MIT
"""A pytest plug-in: the name safetensors means our package, and each test's result is recorded."""
import importlib
import json
import os
import sys

for _name in ("safetensors", "safetensors.numpy", "safetensors.torch"):
    if _name in sys.modules:
        raise RuntimeError(f"{_name} was imported before ours took its name")
    sys.modules[_name] = importlib.import_module(f"penstock.{_name}")

_tests = {}


def pytest_runtest_logreport(report):
    name = report.nodeid.partition("/")[2] or report.nodeid
    if report.when != "call" and report.outcome == "passed":
        return
    text = ""
    if report.outcome == "skipped":
        text = report.longrepr[2].removeprefix("Skipped: ")
    elif report.outcome == "failed":
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash else str(report.longrepr)
    _tests[name] = {"outcome": report.outcome, "text": " ".join(text.split())[:300]}


def pytest_sessionfinish(session):
    if any(name.startswith("safetensors._") for name in sys.modules):
        raise RuntimeError("the real package was imported")
    with open(os.environ["UPSTREAM_RESULTS"], "w", encoding="utf-8") as file:
        json.dump(_tests, file)
