"""What is said of LoRe, on made-up classifiers."""

import numpy as np

from paper_repro.l21 import networks_claims
from paper_repro.l21.crime_tables import NLL
from paper_repro.l21.embeddings import LENGTH_SCALES
from paper_repro.l21.methods import GLOBAL, LOCAL

LENGTH = 40


def metrics(value, gain=0.0):
    """Of one method: every error is the value."""
    names = [f"{x} curve ({y})" for x in ("MLCE", "mean LCE") for y in LENGTH_SCALES]
    curves = {name: [value] * LENGTH for name in names}
    scalars = {"PRR": 1 - value, "ECE": value, NLL: value, "Brier": value, "gain": gain}
    return curves | scalars | {"gain curve": [gain] * 39}


def classifier(value_of_lore, gain=0.0):
    methods = {x: metrics(0.2 + 0.01 * i) for i, x in enumerate(GLOBAL)}
    return {"methods": methods | {x: metrics(value_of_lore, gain) for x in LOCAL}}


def test_claims_count_classifiers():
    results = {"best": classifier(0.1, 0.5), "second": classifier(0.205), "worst": classifier(0.9)}
    rows = list(networks_claims.claim_rows(results))
    assert {row.classifiers for row in rows} == {3}
    assert len(rows) == 2 * 12
    for row in rows:
        assert row.which == "best", row
        assert row.true == 1


def test_lower_than_each_is_less_than_lower_than_all_at_once():
    """Two methods take turns: LoRe is below each at 25 of 40 length scales, below both at 10."""
    result = classifier(0.5)["methods"]
    ours = [0.15] * LENGTH
    low, high = 0.1, 0.9
    turns = {GLOBAL[0]: [low] * 15 + [high] * 25, GLOBAL[1]: [high] * 25 + [low] * 15}
    for features in LENGTH_SCALES:
        name = f"MLCE curve ({features})"
        for local in LOCAL:
            result[local][name] = ours
        for method, curve in turns.items():
            result[method][name] = curve
    found = networks_claims.verdicts(result, LOCAL[0], "t-SNE")
    text = "lower MLCE for most length scales than"
    assert found[f"{text} no recalibration", "Fig. 8, 9"]
    assert found[f"{text} each method", "Fig. 8, 9"]
    assert not found[f"{text} all methods at once", "Fig. 8, 9"]
    half = [low] * (LENGTH // 2) + [high] * (LENGTH // 2)  # which is not most
    result[GLOBAL[0]]["MLCE curve (t-SNE)"] = half
    assert not any(
        value
        for (claim, _), value in networks_claims.verdicts(result, LOCAL[0], "t-SNE").items()
        if claim.startswith(text)
    )


def test_scores_are_those_of_all_classes_where_they_are_known():
    result = classifier(0.1)["methods"]
    result[LOCAL[0]] |= {"class ECE": 0.9, "class NLL": 0.9}
    found = networks_claims.verdicts(result, LOCAL[0], "t-SNE")
    assert found["lowest ECE", "Table 4"]  # that of groups of classes is another thing
    assert not found["lowest NLL", "Table 4"]
    result[GLOBAL[0]]["PRR"] = None
    assert not networks_claims.verdicts(result, LOCAL[0], "t-SNE")["highest PRR", "Table 4"]


def test_tables(tmp_path):
    results = {"a": classifier(0.1)}
    networks_claims.write_tables(tmp_path, results, np.array([1.5, 10.0]))
    assert {path.name for path in tmp_path.iterdir()} == {"claims.csv", "claims.md"}
    found = dict.fromkeys(("class ECE", "class ECE by chance"), 0.1)
    found |= dict.fromkeys(("class MCE", "class MCE by chance"), 0.3)
    results["a"]["methods"][GLOBAL[0]] |= found
    networks_claims.write_tables(tmp_path, results, np.array([1.5, 10.0]))
    lines = (tmp_path / "classes.csv").read_text().splitlines()
    assert lines[1] == f"a,{GLOBAL[0]},0.1,0.1,0.3,0.3"
