import ast
import string
from typing import NamedTuple

from experiments.harness import source, stand_in
from experiments.harness.tables import write_table


class Row(NamedTuple):
    quantity: str
    number: float | None


def test_tables(tmp_path):
    records = [Row("p", 0.123456), Row("n", None)]
    write_table(tmp_path, "t", records, "Note.", names={"number": "ours"})
    assert (tmp_path / "t.csv").read_text() == "quantity,ours\np,0.123456\nn,\n"
    assert (tmp_path / "t.md").read_text().splitlines() == [
        "| quantity | ours |",
        "| --- | --- |",
        "| p | 0.123 |",
        "| n |  |",
        "",
        "Note.",
    ]


def test_stand_in_data_is_marked_and_shows_nothing_published(tmp_path):
    row = {"x": 1, "ECE, published": 2.0, "ECE, sd": 3.0, "ours": 4.0, "ours, sd": 5.0}
    with stand_in.marked("name", "digits", "more"):
        write_table(tmp_path, "marked", [row], "A note.")
    write_table(tmp_path, "plain", [row])
    assert (tmp_path / "marked.csv").read_text() == (
        'stand-in data,x,ours,"ours, sd"\ndigits,1,4.0,5.0\n'
    )
    note = (tmp_path / "marked.md").read_text()
    assert "**stand-in data: digits.** What follows is written about the data of the paper" in note
    assert "published" in (tmp_path / "plain.csv").read_text()


def test_notes():
    """Every text has places that can be filled; those that are asked for by name are there."""
    files = [path for room in source.ROOMS for path in (source.ROOT / room).rglob("*.py")]
    calls = [
        (path, node)
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "note_of"
    ]
    assert len(calls) > 40
    for path, call in calls:
        texts = path.with_suffix(".md").read_text(encoding="utf-8")
        places = {x[1] for x in string.Formatter().parse(texts) if x[1] is not None}
        assert all(name.isidentifier() for name in places), path
        assert {x.arg for x in call.keywords if x.arg} <= places, path
        if isinstance(call.args[1], ast.Constant):
            assert f"# {call.args[1].value}\n" in texts, path
