# SPDX-License-Identifier: MIT
"""Types of arguments, for hints."""
import os
from typing import Any, Callable, Optional, Sequence, Union

Path = Union[str, bytes, os.PathLike[Any]]
Offsets = Union[int, Sequence[int], Any]    # Any: a buffer of 64-bit integers
Device = Union[str, int, Any]               # Any: a torch.device
Progress = Callable[[int, int], Any]        # bytes so far, bytes in all
Policy = Optional[Union[str, Sequence[str]]]    # names of paths in order of preference
