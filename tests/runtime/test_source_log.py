"""What is taken of Spark's progress log at a barrier."""

from pathlib import Path

from epochal.runtime.dataflow import source_log


def write(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def offsets(*lines: str) -> str:
    return "\n".join(["v1", "{}", *lines])


def test_what_spark_wrote_ahead_for_the_next_batch_is_left_out(tmp_path: Path) -> None:
    notes = {f"sources/0/{number}": "v1" for number in range(4)}
    write(tmp_path, {"offsets/2": offsets('{"logOffset":2}'), "offsets/3": offsets('{"logOffset":3}'), **notes})
    position = source_log.capture(tmp_path, 2)
    assert list(position.log) == ["offsets/2"]
    assert position.seen == {"0": 2}


def test_notes_go_as_far_as_the_offset_says_and_not_as_the_batch(tmp_path: Path) -> None:
    """A first batch that never ran leaves a note behind; the restored source's notes are then ahead of its batches.
    Taken by the batch's number, the newest files would be read twice."""
    notes = {f"sources/0/{number}": "v1" for number in range(5)}
    write(tmp_path, {"offsets/2": offsets('{"logOffset":3}'), **notes})
    assert source_log.capture(tmp_path, 2).seen == {"0": 3}


def test_each_source_of_a_union_has_notes_of_its_own(tmp_path: Path) -> None:
    first = {f"sources/0/{number}": "v1" for number in range(3)}
    second = {f"sources/1/{number}": "v1" for number in range(6)}
    write(tmp_path, {"offsets/2": offsets('{"logOffset":2}', '{"logOffset":4}'), **first, **second})
    assert source_log.capture(tmp_path, 2).seen == {"0": 2, "1": 4}


def test_a_starting_offset_is_kept(tmp_path: Path) -> None:
    write(tmp_path, {"offsets/7": offsets('{"orders":{"0":90}}'), "sources/0/0": '\0v1\n{"orders":{"0":0}}'})
    assert "sources/0/0" in source_log.capture(tmp_path, 7).log


def test_before_the_first_batch_a_starting_offset_is_kept_and_a_list_of_files_is_not(tmp_path: Path) -> None:
    write(tmp_path, {"sources/0/0": '\0v1\n{"orders":{"0":0}}', "sources/1/0": 'v1\n{"path":"a.json","batchId":0}'})
    assert list(source_log.capture(tmp_path, -1).log) == ["sources/0/0"]
