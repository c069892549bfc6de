"""Modules that people's own code may still import by the name that they had before."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

FORMER_NAMES = {
    "agents.arena.interfaces": "agents.arena.players",
    "agents.distributed.interfaces": "agents.distributed.protocol",
    "agents.environments.spaces": "agents.spaces",
    "agents.games.interfaces": "agents.games.rules",
    "agents.networks.soft_actor_critic": "agents.networks.twin_critics",
}


class _Renamed(MetaPathFinder, Loader):
    """Finds a module by its former name. It contains the objects of the module of today."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in FORMER_NAMES else None

    def exec_module(self, module: ModuleType) -> None:
        today = importlib.import_module(FORMER_NAMES[module.__name__])
        public = {name: value for name, value in vars(today).items() if not name.startswith("_")}
        vars(module).update(public)


def install() -> None:
    """Let `import` find the former names, after everything else."""
    sys.meta_path.append(_Renamed())
