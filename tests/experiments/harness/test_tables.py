from experiments.harness.tables import write_table


def test_tables(tmp_path):
    write_table(tmp_path, "t", ["quantity", "ours"], [["p", 0.123456], ["n", None]], "Note.")
    assert (tmp_path / "t.csv").read_text() == "quantity,ours\np,0.123456\nn,\n"
    assert (tmp_path / "t.md").read_text().splitlines() == [
        "| quantity | ours |",
        "| --- | --- |",
        "| p | 0.123 |",
        "| n |  |",
        "",
        "Note.",
    ]
