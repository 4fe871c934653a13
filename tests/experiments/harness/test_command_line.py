import pytest

from experiments.harness import cells, command_line


def test_wrong_options_are_named(capsys, tmp_path):
    parser = command_line.option_parser(
        cells.__file__, "", data="optional", presets=("quick", "paper")
    )
    with pytest.raises(SystemExit):
        command_line.parse(parser, ["--preset", "huge"])
    assert "argument --preset: invalid choice: 'huge'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command_line.parse(parser, ["--data", str(tmp_path / "missing")])
    assert "--data: expected a folder" in capsys.readouterr().err
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        command_line.parse(parser, ["--output", str(tmp_path / "file")])
    assert "--output: expected a folder, got the file" in capsys.readouterr().err
    run, _ = command_line.parse(parser, ["--data", str(tmp_path)])
    assert run.published("a", "b.csv") is None
    assert "the published numbers of a/b.csv are left empty." in capsys.readouterr().out
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match=r"a/b\.csv, got none .*`python -m paper_repro"):
        run.published("a", "b.csv")
