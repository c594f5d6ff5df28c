# SPDX-License-Identifier: MIT
"""What programs import of 3FS's package of this name: hf3fs_fuse.io.

The other modules of a package of 3FS that is installed, such as hf3fs_fuse.fuse, stay reachable.
"""
import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
