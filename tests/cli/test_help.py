"""`upriver --help` and every sub-command: one screen, an example, options that exist."""

import re
import shlex

import pytest

from upriver.cli import COMMANDS, main, make_app


@pytest.fixture(autouse=True)
def screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def help_of(capsys, *words):
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


def test_the_first_page_says_what_each_command_does(capsys):
    text = help_of(capsys)
    assert len(text.splitlines()) <= 40
    for name in COMMANDS:
        assert re.search(rf"│ {name} +[A-Z]\w+", text), name
    assert "Example: upriver run quick" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_one_screen_with_an_example_that_parses(name, capsys):
    text = help_of(capsys, name)
    assert len(text.splitlines()) <= 40, "more than one screen"
    example = re.search(rf"Example: upriver ({name}.*?)\n *\n", text, re.DOTALL)
    assert example, "no example"
    words = shlex.split(re.split(r",\s", example[1])[0])
    make_app(None).parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["reprot", "x"], '"report"'),
        (["table", "x", "--fromat", "csv"], "--format"),
        (["plot", "x", "lerning"], '"learning"'),
        (["run", "quik"], "'quick'"),
        (["diagnose", "riverswum-6"], "'riverswim'"),
        (["diagnose", "riverswim-6", "--features", "sharde"], "did you mean 'shared'"),
        (
            ["diagnose", "gym:FrozenLake-v1", "--features", "shared"],
            "features 'shared' need an environment of the catalogue",
        ),
    ],
)
def test_errors_name_the_nearest_word(words, hint, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert hint in error and error.startswith("upriver: ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_can_complete(shell):
    script = make_app(None).generate_completion(shell=shell)
    for word in ("report", "check", "columns", "regret-log"):
        assert word in script
