"""The two counters that order everything. Both only grow, and no number is ever used twice."""

from typing import NewType

Epoch = NewType("Epoch", int)
"""One checkpoint's number, over the job's whole life. Failed epochs keep theirs."""

Generation = NewType("Generation", int)
"""One incarnation of the job's driver, given by the controller."""

FIRST_EPOCH = Epoch(1)
FIRST_GENERATION = Generation(1)

NO_EPOCH = Epoch(0)
"""Stands for "before the first epoch": the parent of a job's first epoch, and the state of an empty start."""

MAX_EPOCH = 10**10 - 1
"""Object names hold ten digits: 31 years of ten epochs a second."""

MAX_GENERATION = 10**6 - 1
"""Object names hold six digits: a restart a minute for almost two years."""


def next_epoch(epoch: Epoch) -> Epoch:
    if epoch >= MAX_EPOCH:
        raise OverflowError(f"epoch {epoch} is the last one that an object name can hold; start a new job")
    return Epoch(epoch + 1)


def next_generation(generation: Generation) -> Generation:
    if generation >= MAX_GENERATION:
        raise OverflowError(f"generation {generation} is the last one that an object name can hold; start a new job")
    return Generation(generation + 1)
