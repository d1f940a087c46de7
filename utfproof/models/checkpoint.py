"""Run in a process of its own: a PyTorch checkpoint, read by torch with weights_only=True, as safetensors.

`python checkpoint.py CHECKPOINT OUT.safetensors`. What a person has to know ends it, as its last line on standard error.
"""

from __future__ import annotations

import json
import pickle
import re
import sys
from typing import Any, NoReturn

NESTED = ("state_dict", "model_state_dict", "model")
"""Keys under which checkpoints hold the state dict."""
CONFIGURED = ("model_args", "hyper_parameters")
"""Keys under which they hold the model's configuration."""
UNREAD = 3
"""Exit code where the last line says what is wrong with the checkpoint itself."""


def refuse(problem: str) -> NoReturn:
    """End with this line."""
    print(problem, file=sys.stderr)
    sys.exit(UNREAD)


def holds_weights(value: Any) -> bool:
    """Whether this is a dict with a tensor of two axes or more: a state dict, and no state of an optimiser."""
    return isinstance(value, dict) and any(getattr(part, "ndim", 0) > 1 for part in value.values())


def state_dict(found: Any) -> dict[str, Any]:
    """The one state dict that a checkpoint holds. Several (weights and their running mean, say) are refused."""
    if not isinstance(found, dict) or not found:
        refuse("it holds no state dict")
    candidates = [
        key
        for key, value in found.items()
        if holds_weights(value) or (key in NESTED and value and isinstance(value, dict))
    ]
    if len(candidates) > 1 or (candidates and holds_weights(found)):
        beside = ", and tensors beside them" if holds_weights(found) else ""
        refuse(f"it holds several state dicts, {', '.join(map(repr, candidates))}{beside}: save the one that is meant")
    held: dict[str, Any] = found[candidates[0]] if candidates and candidates[0] in NESTED else found
    for name, value in held.items():
        if not isinstance(name, str) or not hasattr(value, "detach"):
            refuse(f"{name!r} is no tensor with a name; save the state dict alone")
    return held


def configuration(found: Any) -> dict[str, Any]:
    """What the checkpoint says about its model; values that JSON does not have as their text."""
    said = [key for key in CONFIGURED if isinstance(found, dict) and isinstance(found.get(key), dict) and found[key]]
    if len(said) > 1:
        refuse(f"it holds several configurations, {', '.join(said)}: keep one")
    return {str(name): value for name, value in found[said[0]].items()} if said else {}


def load(path: str) -> Any:
    """What torch reads without running any code; else a line that says what is in the way."""
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        text = str(error)
        if blocked := re.search(r"GLOBAL ([\w.]+) was|global:? GLOBAL ([\w.]+)", text):
            name = blocked[1] or blocked[2]
            refuse(f"it holds {name}, which could run code when it is loaded; save the state dict alone")
        with open(path, "rb") as stream:
            start = stream.read(40)
        if start.startswith(b"version https://git-lfs"):
            refuse("it is a Git LFS pointer, not the file itself: run git lfs pull")
        line = (text.splitlines() or [""])[0].split("Please")[0].strip()
        refuse(f"torch.load with weights_only=True does not read it ({line[:120]}); save its state dict as safetensors")


def main(path: str, out: str) -> None:
    """Write the tensors of the checkpoint, with its configuration as metadata."""
    from safetensors.torch import save_file

    found = load(path)
    tensors = {name: value.detach().clone().contiguous() for name, value in state_dict(found).items()}
    save_file(tensors, out, {"config": json.dumps(configuration(found), default=str)})


if __name__ == "__main__":
    main(*sys.argv[1:])
