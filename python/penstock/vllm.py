# SPDX-License-Identifier: MIT
"""Load vLLM's weights with Penstock:

    vllm serve M --load-format penstock --model-loader-extra-config '{"bytes_ahead": 4000000000}'

vLLM finds register() by an entry point of the wheel, and calls it in every process.
"""
import contextlib
import logging

from ._ahead import Ahead, natural
from ._lib import near

__all__ = ["LOAD_FORMAT", "register"]

LOAD_FORMAT = "penstock"

# Valid keys of model_loader_extra_config: type, description.
_KEYS = {
    "bytes_ahead": (int, "a whole number of bytes, at least 1"),
    "strict": (bool, "true or false"),
    "device": (str, '"cpu", "cuda" or "cuda:N"'),
    "checkpoint": (str, '"safetensors" or "mistral"'),
    "enable_weights_track": (bool, "true or false"),
}


def extra(config):
    """Return the checked model_loader_extra_config.  Raises ValueError."""
    if not isinstance(config, dict):
        raise ValueError("load format penstock: model_loader_extra_config is an object of JSON, "
                         f"not of type {type(config).__name__}")
    for key, value in config.items():
        if key not in _KEYS:
            raise ValueError(f"load format penstock: model_loader_extra_config has no {key!r}; it "
                             f"has {', '.join(_KEYS)}{near(key, _KEYS)}")
        kind, what = _KEYS[key]
        if type(value) is not kind or key == "bytes_ahead" and value < 1 or \
                key == "checkpoint" and value not in ("safetensors", "mistral"):
            raise ValueError(f"load format penstock: {key} is {what}, not {value!r}")
    return config


def _loader():
    """Return the loader's class, which needs vLLM."""
    import dataclasses

    import torch
    from tqdm.auto import tqdm
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
    from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight
    from vllm.model_executor.model_loader.weight_utils import (
        enable_tqdm, filter_mm_encoder_only_safetensors_files,
        filter_safetensors_files_by_weight_name)
    from vllm.platforms import current_platform

    def on_stream(device):
        """Return a function that makes a context in which a thread uses this thread's current
        stream.

        torch may reuse memory freed by this thread; reads into it then wait for this thread's
        kernels.
        """
        if device.type != "cuda":
            return contextlib.nullcontext
        stream = torch.cuda.current_stream(device)
        return lambda: torch.cuda.stream(stream)

    class PenstockModelLoader(DefaultModelLoader):
        """Reads safetensors files into device memory, some bytes ahead of vLLM."""

        def __init__(self, load_config):
            self.settings = extra(load_config.model_loader_extra_config)
            if load_config.safetensors_load_strategy not in (None, "lazy"):
                raise ValueError("load format penstock: safetensors_load_strategy "
                                 f"'{load_config.safetensors_load_strategy}' is for other formats; "
                                 "leave it out")
            # vLLM's code that finds the files accepts only its own formats.
            theirs = {key: value for key, value in self.settings.items()
                      if key == "enable_weights_track"}
            super().__init__(dataclasses.replace(
                load_config, load_format=self.settings.get("checkpoint", "safetensors"),
                model_loader_extra_config=theirs))

        def _device(self):
            name = self.settings.get("device") or self.load_config.device
            if name is None:
                name = "cuda" if current_platform.is_cuda() else "cpu"
            device = torch.device(name)
            if device.type == "cuda" and device.index is None:
                device = torch.device("cuda", torch.cuda.current_device())
            return device

        def _files(self, source):
            folder, files, is_safetensors, index = self._prepare_weights(
                source.model_or_path, source.subfolder, source.revision, source.fall_back_to_pt,
                source.allow_patterns_overrides)
            if not is_safetensors:
                raise ValueError(f"load format penstock: {files[0]} is no safetensors file; take "
                                 "--load-format auto for this model")
            if self._encoder_only_lm_prefixes is not None:
                files = filter_mm_encoder_only_safetensors_files(
                    files, folder, index, self._encoder_only_lm_prefixes,
                    weights_mapper=self._encoder_only_weights_mapper)
                if not files:
                    raise RuntimeError(f"{source.model_or_path}: --mm-encoder-only leaves no file "
                                       f"of weights; prefixes are {self._encoder_only_lm_prefixes}")
            if source.is_unused_weight is not None:
                files = filter_safetensors_files_by_weight_name(files, source.is_unused_weight)
            return sorted(files, key=natural)

        def _get_weights_iterator(self, source):
            if self.load_config.safetensors_load_strategy not in (None, "lazy"):
                # load_weights() sets this for files in torchao's own format.
                raise ValueError("load format penstock: vLLM puts the tensors of a model of "
                                 "torchao's together; take --load-format auto")
            if not self.counter_before_loading_weights:
                import time
                self.counter_before_loading_weights = time.perf_counter()
            return self._weights(source)

        def _weights(self, source):
            device = self._device()

            def skip(name):
                return should_skip_weight(name, self.local_expert_ids)
            reading = Ahead(self._files(source), str(device), self.settings.get("bytes_ahead"),
                            skip, self.settings.get("strict", False), on_stream(device))
            with reading, tqdm(total=reading.total, desc="Loading safetensors by Penstock",
                               disable=not enable_tqdm(self.load_config.use_tqdm_on_load),
                               unit="B", unit_scale=True, mininterval=1.0) as bar:
                for name, tensor, nbytes in reading:
                    yield source.prefix + name, tensor
                    del tensor
                    bar.update(nbytes)

    return PenstockModelLoader


_registered = []


def register():
    """Register the load format "penstock" in this process.  May be called again.

    With a vLLM that lacks what the format needs, this only prints a warning: the program may use
    other formats.
    """
    if _registered:
        return
    try:
        from vllm.model_executor.model_loader import register_model_loader
        kind = _loader()
    except (ImportError, AttributeError) as error:
        logging.getLogger("vllm.penstock").warning(
            "There is no load format penstock, which is for vLLM 0.33: %s", error)
        return
    _registered.append(register_model_loader(LOAD_FORMAT)(kind))
