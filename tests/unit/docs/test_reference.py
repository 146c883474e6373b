"""The reference pages say what the models say."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.reference import main, openapi, pages
from hybrid.agent.config import AgentConfig
from hybrid.config import ProviderSettings, Settings
from hybrid.domain import job_spec, pool_spec
from hybrid.domain.job_spec import Written
from hybrid.domain.reasons import Reason

FOLDER = Path(__file__).parents[3] / "docs" / "reference"
NAMES = ("job.md", "pool.md", "settings.md", "rest.md")


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages()


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_current(made, name):
    assert (FOLDER / name).read_text() == made[name], "python -m api.reference"


def test_the_module_writes_every_page(made, tmp_path, capsys):
    main([str(tmp_path)])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == made
    assert set(made) == set(NAMES)
    assert len(capsys.readouterr().out.splitlines()) == len(NAMES)


def test_every_operation_stands_on_the_page(made):
    for path, operations in openapi()["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in made["rest.md"]


def test_every_shape_that_is_named_is_shown(made):
    lines = made["rest.md"].splitlines()
    shown = {line.removeprefix("### ").lower() for line in lines if line.startswith("### ")}
    named = {each.split(")")[0] for each in made["rest.md"].split("](#")[1:]}
    assert named <= shown


def test_every_reason_stands_on_the_page(made):
    codes = {each.code for each in Reason.__subclasses__() if each.__module__ == Reason.__module__}
    codes -= {"said"}
    assert len(codes) > 30
    assert {code for code in codes if f"| `{code}` |" in made["rest.md"]} == codes


def _written_in(module: object) -> list[type[Written]]:
    found = [each for each in vars(module).values() if isinstance(each, type)]
    return [each for each in found if issubclass(each, Written) and each is not Written]


@pytest.mark.parametrize(
    "model",
    [*_written_in(job_spec), *_written_in(pool_spec), Settings, ProviderSettings, AgentConfig],
    ids=lambda model: model.__name__,
)
def test_every_field_that_people_write_says_what_it_means(model):
    silent = [name for name, info in model.model_fields.items() if not info.description]
    assert silent == []


def test_every_field_of_an_agent_stands_on_the_page(made):
    for name in AgentConfig.model_fields:
        assert f"| `{name}` |" in made["settings.md"]


def test_a_default_that_depends_on_the_machine_is_not_written_down(made):
    assert str(Path.home()) not in made["settings.md"].replace("`/var/lib", "")
