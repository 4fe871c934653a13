"""What is said of LoRe, on made-up classifiers."""

from paper_repro.l21 import networks_claims
from paper_repro.l21.embeddings import LENGTH_SCALES
from paper_repro.l21.methods import GLOBAL, LOCAL

LENGTH = 40


def metrics(value, gain=0.0):
    """Of one method: every error is the value."""
    names = [f"{x} curve ({y})" for x in ("MLCE", "mean LCE") for y in LENGTH_SCALES]
    curves = {name: [value] * LENGTH for name in names}
    scalars = {"PRR": 1 - value, "ECE": value, "gain": gain}
    scalars |= {"class NLL": value, "class Brier": value}
    return curves | scalars | {"gain curve": [gain] * 39}


def classifier(value_of_lore, gain=0.0):
    methods = {x: metrics(0.2 + 0.01 * i) for i, x in enumerate(GLOBAL)}
    return {"methods": methods | {x: metrics(value_of_lore, gain) for x in LOCAL}}


def test_claims_count_classifiers():
    results = {"best": classifier(0.1, 0.5), "second": classifier(0.205), "worst": classifier(0.9)}
    rows = list(networks_claims.claim_rows(results))
    assert len(rows) == 2 * 12
    assert {row[3:] for row in rows} == {(1, 3, "best")}
