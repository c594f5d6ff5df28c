# SPDX-License-Identifier: MIT
"""A loader that is not installed."""

NAMES = ("absent",)
INSTALL = "pip install absent-loader"


def modules(_device):
    return {"no_module_has_this_name": ("absent-loader",)}


def why_not(_name, _device):
    return ""
