"""The newest epoch's manifest is damaged in the store: the job goes on from the epoch before, and says so."""

from epochal.protocol.epochs import Epoch
from examples.cluster.live_job import LiveJob


def test_an_older_epoch_is_used(running: LiveJob) -> None:
    generation = running.generation
    running.suspend()
    running.wait_phase("Stopped")
    damaged = running.epoch
    store = running.cluster.store(f"{running.prefix}/store")
    store.put(running.paths.manifest(Epoch(damaged)), b'{"kind": "Manifest", "version"')
    running.resume()
    running.wait_ready(generation=generation + 1)
    [said] = [message for message in running.events("Restored") if f"generation {generation + 1} " in message]
    assert f"epoch {damaged - 1}" in said
    assert str(damaged) in said
    running.wait_epochs(2)
    assert running.manifest(damaged + 1).parent == damaged - 1
    # What the damaged epoch had brought out already is brought out again by those that follow (docs/pipelines.md).
    running.check_output(without=damaged)
