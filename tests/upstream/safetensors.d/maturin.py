# SPDX-License-Identifier: MIT
"""Replaces the build backend of the package safetensors: returns the metadata in the source
archive.  ../safetensors gives the reason."""
import os
import shutil


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    os.mkdir(f"{metadata_directory}/safetensors.dist-info")
    shutil.copy("PKG-INFO", f"{metadata_directory}/safetensors.dist-info/METADATA")
    return "safetensors.dist-info"
