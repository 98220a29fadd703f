"""The README's program and commands are those of the tutorial, which a test runs as they are printed."""

from tests.docs.pages import block, commands, page

README, TUTORIAL = page("README.md"), page("docs/tutorial.md")


def test_its_program_is_the_one_that_is_run() -> None:
    assert block(README, "python", "clicks.py") == block(TUTORIAL, "python", "clicks.py")


def test_its_manifest_differs_in_where_and_how_often_only() -> None:
    ours = block(README, "yaml", "job.yaml").replace("file:///tmp/clicks", "out").replace("10s", "5s")
    assert ours == block(TUTORIAL, "yaml", "job.yaml")


def test_its_commands_are_run() -> None:
    run = [command[:2] for command in commands(TUTORIAL, "epochal")]
    assert [command[:2] for command in commands(README, "epochal")] == [
        ["run", "job.yaml"],
        ["checkpoints", "job.yaml"],
        ["inspect", "job.yaml"],
        ["timeline", "job.yaml"],
    ]
    assert all(command[:2] in run for command in commands(README, "epochal"))
