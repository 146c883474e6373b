"""Jobs from options, files and both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hybrid.cli.describing import Described, described, variables, work_from
from hybrid.cli.documents import MAX_BYTES, read_document, read_documents
from hybrid.cli.exits import CliError
from hybrid.domain.job_spec import JobSpec

NOTHING = Described()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


def test_options_that_are_not_given_say_nothing() -> None:
    assert described().fields == {}


def test_every_option_is_a_field_of_the_spec() -> None:
    made = described(
        name="train", gpus=2, nodes=3, gpu=["a100"], gpu_memory="40GiB", link="nvlink", share=1.0,
        cpus=4, memory="16GiB", image="python:3.12", env=["A=b=c"], output_path=["out"],
        team="red", priority="high", pool=["rack"], no_burst=True,
        deadline="2999-01-01T00:00:00Z", expected="1h", walltime="2h", max_cost="3.50",
        checkpoint=True, retries=2,
    )  # fmt: skip
    spec = JobSpec.model_validate({"command": ["true"], **made.fields})
    assert spec.resources.total_gpus == 6
    assert spec.resources.gpu.models == ("a100",)
    assert spec.resources.gpu.memory == 40
    assert spec.env == {"A": "b=c"}
    assert spec.where.pools == ("rack",)
    assert spec.where.burst == "never"
    assert spec.expected_runtime == 3600
    assert spec.checkpoint.enabled
    assert spec.retries.max == 2


def test_parts_of_a_gpu_are_fields_of_the_spec() -> None:
    made = described(slice_memory="10GiB", time_slicing=True)
    spec = JobSpec.model_validate({"command": ["true"], **made.fields})
    assert spec.resources.gpu.slice_memory == 10
    assert spec.resources.gpu.time_slicing


def test_options_win_over_the_file_field_by_field(file: Path) -> None:
    file.write_text("command: [a]\nresources: {gpus: 4, cpus: 8}\nname: filed\n")
    work = work_from(file, described(gpus=1), ["b", "c"])
    assert work.spec == {
        "command": ["b", "c"], "resources": {"gpus": 1, "cpus": 8}, "name": "filed",
    }  # fmt: skip


def test_a_workdir_that_is_a_path_is_relative_to_the_file(file: Path) -> None:
    file.write_text("command: [a]\nworkdir: code\n")
    work = work_from(file, NOTHING, None)
    assert work.folder == file.parent / "code"
    assert "workdir" not in work.spec


def test_a_workdir_that_is_a_digest_stays(file: Path) -> None:
    file.write_text(f"command: [a]\nworkdir: sha256:{'0' * 64}\n")
    work = work_from(file, NOTHING, None)
    assert work.folder is None
    assert work.spec["workdir"] == f"sha256:{'0' * 64}"


def test_a_folder_on_the_command_line_comes_before_the_files(file: Path) -> None:
    file.write_text("command: [a]\nworkdir: code\n")
    assert work_from(file, NOTHING, None, Path("here")).folder == Path("here")


def test_a_job_without_a_command_is_refused() -> None:
    with pytest.raises(CliError, match="no command to run"):
        work_from(None, described(gpus=1), None)


def test_a_variable_alone_is_as_it_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEN", "yes")
    assert variables(["SEEN", "OTHER="]) == {"SEEN": "yes", "OTHER": ""}


def test_a_variable_that_is_not_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSEEN", raising=False)
    with pytest.raises(CliError, match="UNSEEN: it is not set here; write UNSEEN=VALUE"):
        variables(["UNSEEN"])


def test_instants_reach_the_server_as_they_were_written(file: Path) -> None:
    file.write_text("deadline: 2030-01-31T18:00:00Z\n")
    assert read_document(file) == {"deadline": "2030-01-31T18:00:00Z"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not YAML"), ("- a\n", "a mapping"), ("", "nothing in it"),
        ("1: a\n", "a mapping"),
        ("a: 1\n---\nb: 2\n", "2 documents where one is wanted"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_document_is_refused(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(CliError, match=said):
        read_document(file)


def test_several_documents_are_read_where_several_are_wanted(file: Path) -> None:
    file.write_text("a: 1\n---\nb: 2\n")
    assert read_documents(file) == [{"a": 1}, {"b": 2}]


def test_a_file_that_is_not_there_too_large_or_no_text_is_refused(file: Path) -> None:
    with pytest.raises(CliError, match="No such file"):
        read_document(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(CliError, match="not text in UTF-8"):
        read_document(file)
    file.write_bytes(b"a" * (MAX_BYTES + 1))
    with pytest.raises(CliError, match="at most"):
        read_document(file)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("expected_runtime: .nan", "expected_runtime"),
        ("resources: {gpu: {memory: .inf}}", "resources.gpu.memory"),
        ("zones: [{weight: 1}, {weight: -.inf}]", "zones[1].weight"),
    ],
)
def test_what_is_no_number_is_refused_where_it_stands(
    tmp_path: Path, text: str, where: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(CliError, match=re.escape(f"{where}: must be a finite number")):
        read_document(file)
