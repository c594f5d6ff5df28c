# SPDX-License-Identifier: MIT
"""Types of arguments, for hints."""
import os
from typing import Any, Callable, Optional, Sequence, Union

Path = Union[str, bytes, os.PathLike[Any]]
Offsets = Union[int, Sequence[int], Any]    # Any: a buffer of 64-bit integers
Device = Union[str, int, Any]               # Any: a torch.device
# True for tqdm or a line on standard error, or a function of bytes so far and total bytes.
Progress = Union[None, bool, Callable[[int, int], Any]]
Policy = Optional[Union[str, Sequence[str]]]    # names of paths in order of preference
