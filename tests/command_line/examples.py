"""Contents of files, and an evaluation, not a computed one, with everything that a report shows."""

from calibjax.evaluation.record import Advice, Entry, Evaluation, Panel, Section
from calibjax.plotting.figures import figure

GOOD = "prob_0,prob_1,label\n0.25,0.75,1\n0.5,0.5,0\n0.1,0.9,1\n"
NORMAL = "mean,sd,target\n0,1,0.5\n1,2,-3\n2,1,2.5\n"


def _curve(shown, ax=None):
    with figure(ax, (5, 4)) as ax:
        ax.plot(shown, shown)
        ax.set(xlabel="predicted & observed", ylabel="<frequency>")
    return ax


ENTRIES = (
    Entry(
        "exact p-value",
        0.001,
        standard_error=0.001,
        call='hypothesis_tests.aggregated_skce_test(key, predictions, targets).of["<all>"]',
        note="redrawn: the <targets>, from the predictions",
    ),
    Entry("ECE, top label", 0.0371, None, 0.002, 0.033, 0.041, (0.002, 0.006), 0.001),
    Entry("temperature <T>", float("nan"), note="does not exist: all labels are the likeliest"),
)
EVALUATION = Evaluation(
    task="classification",
    num_samples=3,
    description="3 predictions of 2 classes & their labels.",
    sections=(
        Section("Is it calibrated?", ENTRIES[:1], "The kernel is the <default> one."),
        Section("How far is it off?", ENTRIES[1:], is_detail=True),
    ),
    sentences=("The model is <overconfident>.", "A temperature of 1.6 repairs most of it."),
    panels=(Panel("reliability", 'Observed frequencies over "<predicted>" ones.', _curve, [0, 1]),),
    advice=(Advice("Scale <all> predictions.", "a = b < c"),),
)
