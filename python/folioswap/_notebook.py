"""`%load_ext folioswap`: a magic for notebooks and IPython."""

from __future__ import annotations

from typing import Any

from . import _limit
from ._limit import disable, enable
from ._watch import watch

_USAGE = """%folioswap SIZE [OPTION=VALUE ...]   a limit for all further cells: 2G, 512M, 50%
%folioswap                           what it holds now
%folioswap watch                     ... while the cell runs, and after it until the limit ends
%folioswap off                       ends it; arrays stay valid

Options are those of folioswap.limit: scope=resident, when_full=abort, fork=leave,
user_faults_only=allow, swap=DEVICE (may be given several times)."""


def _magic(line: str) -> Any:
    """Sets, shows or ends the limit of this notebook. `%folioswap ?` explains."""
    words = line.split()
    if words == ["off"]:
        disable()
        return None
    if words == ["watch"]:
        return watch()
    if not words and _limit._enabled is not None:
        return _limit._enabled.limit
    if not words or words[0] in ("?", "help", "--help"):
        print(_USAGE)
        return None
    options: dict[str, Any] = {}
    for word in words[1:]:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise ValueError(f"{word!r} is not OPTION=VALUE\n{_USAGE}")
        if name == "swap":
            options.setdefault("swap", []).append(value)
        else:
            options[name] = value
    return enable(words[0], **options)


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext folioswap`: gives the shell the magic `%folioswap`."""
    shell.register_magic_function(_magic, "line", "folioswap")


def unload_ipython_extension(shell: Any) -> None:
    """Called by `%unload_ext folioswap`: ends the limit, and takes the magic back."""
    disable()
    shell.magics_manager.magics["line"].pop("folioswap", None)
