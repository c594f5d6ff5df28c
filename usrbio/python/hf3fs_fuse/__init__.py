# SPDX-License-Identifier: MIT
"""A stand-in for 3FS's package of this name, with the module hf3fs_fuse.io.

If 3FS's own package is installed, its other modules, such as hf3fs_fuse.fuse, remain importable.
"""
import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
