# SPDX-License-Identifier: MIT
"""What programs import of 3FS's package of this name: hf3fs_fuse.io."""
