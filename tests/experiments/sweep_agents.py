"""Agents that log, raise or die, for sweeps that must survive them. Found as `module:Class`."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from upriver.agents.fixed import Random
from upriver.play.checkpoints import spawn_generators

LOG = "UPRIVER_TEST_LOG"


def word_of(seed: int) -> int:
    """The first thing that an agent draws in a run with this seed: it tells the seed."""
    return int(spawn_generators(seed)[1].integers(2**62))


@dataclass(frozen=True)
class Logged(Random):
    """Uniform play that leaves a line in a file for every run that is started, and chatters."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {}

    def init(self) -> bool:
        return True

    def plan(self, state: bool, rng: np.random.Generator):
        if state:
            word = int(rng.integers(2**62))
            print("an agent may print")
            if LOG in os.environ:
                log = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                os.write(log, f"{word}\n".encode())
                os.close(log)
        return super().plan(state, rng)

    def update(self, state, plan, episode) -> bool:
        return False


@dataclass(frozen=True)
class Raises(Random):
    """Uniform play that raises in every run whose first draw is odd."""

    def init(self) -> bool:
        return True

    def plan(self, state, rng):
        if state and rng.integers(2**62) % 2:
            raise ArithmeticError("an odd draw")
        return super().plan(state, rng)

    def update(self, state, plan, episode) -> bool:
        return False


@dataclass(frozen=True)
class Dies(Random):
    """Uniform play that kills its own process in the run of one seed."""

    at_seed: int = 3

    def init(self) -> bool:
        return True

    def plan(self, state, rng):
        if state and int(rng.integers(2**62)) == word_of(self.at_seed):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().plan(state, rng)

    def update(self, state, plan, episode) -> bool:
        return False


@dataclass(frozen=True)
class Sleeps(Random):
    """Uniform play, slowly."""

    def plan(self, state, rng):
        import time

        time.sleep(0.2)
        return super().plan(state, rng)


@dataclass(frozen=True)
class Exits(Random):
    """Uniform play that leaves: by raising, or by ending its process with an exit code."""

    code: int = -1

    def plan(self, state, rng):
        import sys

        if self.code >= 0:
            os._exit(self.code)
        sys.exit(3)


@dataclass(frozen=True)
class Wanders(Random):
    """Uniform play that changes the current folder."""

    def plan(self, state, rng):
        os.chdir("/")
        return super().plan(state, rng)


@dataclass(frozen=True)
class Talks(Random):
    """Uniform play that ends with three megabytes of complaint."""

    def plan(self, state, rng):
        raise ValueError("x" * 3_000_000)


@dataclass(frozen=True)
class Removes(Random):
    """Uniform play that removes a folder."""

    folder: str = ""

    def plan(self, state, rng):
        import shutil

        if os.path.isdir(self.folder):
            shutil.rmtree(self.folder)
        return super().plan(state, rng)


@dataclass(frozen=True)
class Aborts(Random):
    """Uniform play that kills its own process, whatever the seed."""

    def plan(self, state, rng):
        os.kill(os.getpid(), signal.SIGKILL)
