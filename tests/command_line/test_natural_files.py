"""Files as other programs write them work at once, or the error prints the command that works."""

import gzip
import shlex

import numpy as np
import pytest

from calibjax.command_line import load
from calibjax.command_line.tables import InputError
from tests.command_line.examples import npy, npz

PROBS = np.array([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25], [0.1, 0.3, 0.6], [0.5, 0.25, 0.25]])
TEN = "\n".join(
    ",".join([str(i), *(f"{0.55 if j == i else 0.05}" for j in range(10))]) for i in range(10)
)

# Name of the case: ending, content, task, columns of predictions, column of targets, values of the
# first row (probabilities, or parameters), targets, names of classes.
AT_ONCE = {
    "scikit-learn, predict_proba[:, 1]": (
        *(".csv", "y_test,y_prob\n1,0.75\n0,0.5\n1,0.9\n"),
        *("binary", "y_prob", "y_test", [0.75], [1, 0, 1], "0 1"),
    ),
    "scikit-learn, all columns, with the index of pandas": (
        *(".csv", ",0,1,2,y_true\n0,0.7,0.2,0.1,0\n1,0.25,0.5,0.25,1\n2,0.1,0.3,0.6,2\n"),
        *("classification", "0 1 2", "y_true", [0.7, 0.2, 0.1], [0, 1, 2], "0 1 2"),
    ),
    "scikit-learn, names of classes": (
        *(".csv", "setosa,virginica,species,y\n0.25,0.75,1,virginica\n0.5,0.5,2,setosa\n"),
        *("classification", "setosa virginica", "y", [0.25, 0.75], [1, 0], "setosa virginica"),
    ),
    "ten classes, p0 to p9": (
        *(".csv", f"label,{','.join(f'p{i}' for i in range(10))}\n{TEN}\n"),
        "classification",
        " ".join(f"p{i}" for i in range(10)),
        *("label", [0.55, *[0.05] * 9], [*range(10)], "0 1 2 3 4 5 6 7 8 9"),
    ),
    "ten classes, 0 to 9, labels before them": (
        *(".csv", f"Target,{','.join(map(str, range(10)))}\n{TEN}\n"),
        "classification",
        " ".join(map(str, range(10))),
        *("Target", [0.55, *[0.05] * 9], [*range(10)], "0 1 2 3 4 5 6 7 8 9"),
    ),
    "class and proba_": (
        *(".csv", "class,predicted,proba_0,proba_1\n1,1,0.25,0.75\n0,0,0.5,0.5\n"),
        *("classification", "proba_0 proba_1", "class", [0.25, 0.75], [1, 0], "0 1"),
    ),
    "capitals": (
        *(".csv", "Prob_Cat,Prob_Dog,Label\n0.25,0.75,dog\n0.5,0.5,cat\n"),
        *("classification", "Prob_Cat Prob_Dog", "Label", [0.25, 0.75], [1, 0], "Cat Dog"),
    ),
    "pandas, score and truth values": (
        *(".csv", "id,target,score\n17,True,0.75\n23,False,0.5\n"),
        *("binary", "score", "target", [0.75], [1, 0], "0 1"),
    ),
    "labels -1 and 1": (
        *(".csv", "y,y_pred,y_pred_proba\n1,1,0.75\n-1,1,0.5\n"),
        *("binary", "y_pred_proba", "y", [0.75], [1, 0], "-1 1"),
    ),
    "R, write.csv with names of rows": (
        *(".csv", '"","prob","obs"\n"1",0.75,TRUE\n"2",0.5,FALSE\n'),
        *("binary", "prob", "obs", [0.75], [1, 0], "0 1"),
    ),
    "R, write.csv2": (
        *(".csv", '"";"a";"b";"truth"\n"1";0,25;0,75;"b"\n"2";0,5;0,5;"a"\n'),
        *("classification", "a b", "truth", [0.25, 0.75], [1, 0], "a b"),
    ),
    "R, write.table": (
        *(".txt", '"loc" "scale" "target"\n"1" 0 1 0.5\n"2" 1 2 -3\n'),
        *("normal", "loc scale", "target", [0, 1], [0.5, -3], ""),
    ),
    "yardstick, two classes": (
        *(".csv", "truth,.pred_no,.pred_yes,.pred_class\nyes,0.25,0.75,yes\nno,0.5,0.5,no\n"),
        *("classification", ".pred_no .pred_yes", "truth", [0.25, 0.75], [1, 0], "no yes"),
    ),
    "yardstick, one column": (
        *(".csv", ".pred_yes,.pred_class,truth\n0.75,yes,yes\n0.5,no,no\n"),
        *("binary", ".pred_yes", "truth", [0.75], [1, 0], "no yes"),
    ),
    "yardstick, hpc_cv": (
        *(
            ".csv",
            "obs,pred,VF,F,M,Resample\nVF,VF,0.7,0.2,0.1,1\nF,M,0.2,0.3,0.5,1\nM,F,0,1,0,2\n",
        ),
        *("classification", "VF F M", "obs", [0.7, 0.2, 0.1], [0, 1, 2], "VF F M"),
    ),
    "probability of yes": (
        *(".csv", "prob_yes,label\n0.75,yes\n0.5,no\n"),
        *("binary", "prob_yes", "label", [0.75], [1, 0], "no yes"),
    ),
    "probability of 0": (
        *(".csv", "p_0,y\n0.75,0\n0.5,1\n"),
        *("binary", "p_0", "y", [0.75], [1, 0], "1 0"),
    ),
    "probability of TRUE": (
        *(".csv", "prob_TRUE,label\n0.75,TRUE\n0.5,FALSE\n"),
        *("binary", "prob_TRUE", "label", [0.75], [1, 0], "FALSE TRUE"),
    ),
    "Excel in German": (
        *(".csv", "\ufeffLabel;Prob_0;Prob_1\r\n1;0,25;0,75\r\n0;0,5;0,5\r\n"),
        *("classification", "Prob_0 Prob_1", "Label", [0.25, 0.75], [1, 0], "0 1"),
    ),
    "Excel, UTF-8": (
        *(".csv", "\ufeffy,prob\r\n1,0.75\r\n0,0.5\r\n"),
        *("binary", "prob", "y", [0.75], [1, 0], "0 1"),
    ),
    "tabs in a .csv": (
        *(".csv", "y_true\ty_score\n1\t0.75\n0\t0.5\n"),
        *("binary", "y_score", "y_true", [0.75], [1, 0], "0 1"),
    ),
    "bars": (
        *(".txt", "label|prob\n1|0.75\n0|0.5\n"),
        *("binary", "prob", "label", [0.75], [1, 0], "0 1"),
    ),
    "netcal, classes": (
        *(".npz", npz(predictions=PROBS, ground_truth=np.array([0, 1, 2, 0]))),
        *("classification", "predictions_0 predictions_1 predictions_2", "ground_truth"),
        *([0.7, 0.2, 0.1], [0, 1, 2, 0], "0 1 2"),
    ),
    "netcal, one confidence": (
        *(".npz", npz(confidences=PROBS[:, 0], ground_truth=np.array([1, 0, 0, 1]))),
        *("binary", "confidences", "ground_truth", [0.7], [1, 0, 0, 1], "0 1"),
    ),
    "quantile forests": (
        *(".csv", "q0.1,q0.5,q0.9,y\n1,2,3,2.5\n0,1,4,-1\n"),
        *("quantiles", "q0.1 q0.5 q0.9", "y", [1, 2, 3], [2.5, -1], ""),
    ),
    "R, ranger": (
        *(".csv", '"quantile= 0.1","quantile= 0.5","obs"\n1,2,2.5\n0,1,-1\n'),
        *("quantiles", "quantile= 0.1|quantile= 0.5", "obs", [1, 2], [2.5, -1], ""),
    ),
    "R, names of quantile()": (
        *(".csv", '"","10%","50%","90%","y"\n"1",1,2,3,2.5\n"2",0,1,4,-1\n'),
        *("quantiles", "10% 50% 90%", "y", [1, 2, 3], [2.5, -1], ""),
    ),
    "percents in names": (
        *(".csv", "q05;q50;q95;target\n1,5;2;3;2,5\n0;1;4;-1\n"),
        *("quantiles", "q05 q50 q95", "target", [1.5, 2, 3], [2.5, -1], ""),
    ),
    "Gaussian process": (
        *(".csv", ",y_true,mean,std\n0,0.5,0,1\n1,-3,1,2\n"),
        *("normal", "mean std", "y_true", [0, 1], [0.5, -3], ""),
    ),
    "mu and sigma": (
        *(".tsv", "Mu\tSigma\tObserved\n0\t1\t0.5\n1\t2\t-3\n"),
        *("normal", "Mu Sigma", "Observed", [0, 1], [0.5, -3], ""),
    ),
    "prediction and its deviation": (
        *(".csv", "y_pred,y_std,y_test\n0,1,0.5\n1,2,-3\n"),
        *("normal", "y_pred y_std", "y_test", [0, 1], [0.5, -3], ""),
    ),
    "ensemble": (
        *(".csv", "obs,member1,member2,member3\n0.5,1,2,0\n-3,1,1,1\n"),
        *("ensembles", "member1 member2 member3", "obs", [1, 2, 0], [0.5, -3], ""),
    ),
    "draws": (
        *(".csv", "draw_1,draw_2,y\n1,2,0.5\n1,1,-3\n"),
        *("ensembles", "draw_1 draw_2", "y", [1, 2], [0.5, -3], ""),
    ),
    "counts": (
        *(".csv", "lambda,count,y\n1.5,7,2\n2.5,7,0\n"),
        *("poisson", "lambda", "y", [1.5], [2, 0], ""),
    ),
    "packed": (
        *(".csv.gz", gzip.compress(b"y,prob\n1,0.75\n0,0.5\n")),
        *("binary", "prob", "y", [0.75], [1, 0], "0 1"),
    ),
    "four digits": (
        *(".csv", "p_a,p_b,p_c,label\n0.3333,0.3333,0.3333,a\n0.1,0.2,0.7,c\n0.2,0.6,0.2,b\n"),
        *("classification", "p_a p_b p_c", "label", [0.3333] * 3, [0, 2, 1], "a b c"),
    ),
}


def values_of(predictions):
    """Probabilities, or parameters, or what else there are numbers of, in the first row."""
    fields = {k: v for k, v in vars(predictions).items() if k != "levels"}
    return np.concatenate(
        [np.atleast_1d(np.asarray(v)[0]) for v in fields.values() if v is not None]
    )


@pytest.mark.parametrize("case", AT_ONCE)
def test_files_that_work_at_once(case, written):
    ending, content, task, columns, target, first, targets, classes = AT_ONCE[case]
    data = load([written(ending, content)])
    assert data.choice.task == task
    assert list(data.choice.predictions) == columns.split("|" if "|" in columns else " ")
    assert data.choice.target == target
    np.testing.assert_allclose(values_of(data.predictions), first, rtol=1e-12)
    assert data.targets.tolist() == targets
    assert data.classes == tuple(classes.split())
    if task == "quantiles":
        levels = {2: [0.1, 0.5], 3: [0.05, 0.5, 0.95] if "q05" in columns else [0.1, 0.5, 0.9]}
        np.testing.assert_allclose(data.predictions.levels[0], levels[len(first)], rtol=1e-12)


# Name of the case: ending, content, what the line says, the options that it proposes.
ADVISED = {
    "another name of the labels": (
        *(".csv", "prob_0,prob_1,answer\n0.25,0.75,1\n0.5,0.5,0\n"),
        *("expected one column target or label", "--target answer"),
    ),
    "two columns of labels": (
        *(".csv", "prob_0,prob_1,label,y_true\n0.25,0.75,1,1\n0.5,0.5,1,0\n"),
        *("got label, y_true", "--target label"),
    ),
    "two labels": (
        *(".csv", "y,prob\nyes,0.75\nno,0.5\n"),
        *("the label of which column prob is the probability, got labels no and yes",),
        "--positive yes",
    ),
    "labels with spaces": (
        *(".csv", "y,prob\nnot ill,0.75\nill,0.5\n"),
        *("got labels ill and not ill", "--positive 'not ill'"),
    ),
    "labels 1 and 2": (
        *(".csv", "y,prob\n1,0.75\n2,0.5\n1,0.3\n"),
        *("expected one of the labels 0, 1", "--first-label 1"),
    ),
    "labels of another origin": (
        *(".csv", "p1,p2,p3,y\n0.25,0.5,0.25,0\n0.2,0.2,0.6,2\n"),
        *("expected one of the labels 1, 2, 3", "--first-label 0"),
    ),
    "numbered columns and labels that are words": (
        *(".csv", "p0,p1,p2,y\n0.25,0.5,0.25,owl\n0.2,0.2,0.6,cat\n0.2,0.2,0.6,dog\n"),
        *("expected one of the labels 0, 1, 2", "--class-names cat dog owl"),
    ),
    "columns of any name": (
        *(".csv", "a,b,c,y\n0.25,0.5,0.25,0\n0.2,0.2,0.6,2\n0.1,0.6,0.3,1\n"),
        *("expected columns such as prob_0", "--task classification --predictions a b c"),
    ),
    "one column of any name": (
        *(".csv", "row,model,y\n1,0.25,0\n2,0.2,1\n3,0.7,1\n"),
        *("expected columns such as prob_0", "--task binary --predictions model"),
    ),
    "a confidence, of the predicted label perhaps": (
        *(".csv", "confidence,y\n0.75,1\n0.5,0\n0.9,1\n"),
        *("expected columns such as prob_0", "--task binary --predictions confidence"),
    ),
    "two models": (
        *(".csv", "model a,model b,y\n0.25,0.3,0\n0.2,0.4,1\n0.7,0.9,1\n"),
        *("expected columns such as prob_0", "--task binary --predictions 'model a'"),
    ),
    "nothing has a name that is known": (
        *(".csv", "forest,ill\n0.25,no\n0.7,yes\n0.2,no\n"),
        "expected one column target or label",
        "--target ill --task binary --predictions forest --positive yes",
    ),
    "a location and a scale of any name": (
        *(".csv", "centre,width,y\n0,1,0.5\n1,2,-3\n0,2,0.25\n"),
        *("expected columns such as prob_0", "--task normal --predictions centre width"),
    ),
    "members of any name": (
        *(".csv", "dwd,ecmwf,metoffice,temp\n1.5,2,3,1.5\n2,1.5,1,2.5\n1,0,1.5,2\n"),
        "expected one column target or label",
        "--target temp --task ensembles --predictions dwd ecmwf metoffice",
    ),
    "probabilities without names": (
        *(".csv", "0.25,0.75,1\n0.5,0.5,0\n"),
        *("expected one column target or label", "--target 3 --task classification"),
    ),
    "an array": (
        *(".npy", npy(np.c_[PROBS, [0, 1, 2, 0]])),
        *("expected one column target or label", "--target 4 --task classification"),
    ),
    "crossing quantiles": (
        *(".csv", "q0.1,q0.5,q0.9,target\n1,2,3,1\n3,2,4,1\n4,2,1,1\n"),
        *("they cross in 2 of 3 rows", "--sort-quantiles"),
    ),
    "a missing value": (
        *(".csv", "mean,std,y\n0,1,0.5\nNA,2,-3\n"),
        *("--skip-missing leaves out such rows", "--skip-missing"),
    ),
    "two digits": (
        *(".csv", "p_a,p_b,p_c,label\n0.33,0.33,0.33,a\n0.1,0.2,0.7,c\n0.2,0.6,0.2,b\n"),
        *("--normalize divides each row", "--normalize"),
    ),
    "probabilities of label 1 by two models": (
        *(".csv", "y,prob_lr,prob_rf\n1,0.7,0.8\n0,0.2,0.3\n"),
        *("got the sum 1.5", "--task binary --predictions prob_lr"),
    ),
    "percents": (
        *(".csv", "label,prob_a,prob_b\na,70,30\nb,20,80\n"),
        *("expected probabilities in [0, 1]", "--normalize"),
    ),
    "levels without a point": (
        *(".csv", "q025,q500,q975,y\n1,2,3,2.5\n1,2,4,5\n", "expected columns such as prob_0"),
        "--task quantiles --predictions q025 q500 q975 --levels 0.025 0.500 0.975",
    ),
    "columns p10, p50, p90": (
        *(".csv", "p10,p50,p90,y\n1,2,3,2\n1,2,4,5\n", "expected columns such as prob_0"),
        "--task quantiles --predictions p10 p50 p90 --levels 0.10 0.50 0.90",
    ),
    "two families": (
        *(".csv", "concentration,rate,y\n1.5,2,1\n2.5,1,3\n"),
        *("columns that fit gamma and negative_binomial", "--task gamma"),
    ),
}


@pytest.mark.parametrize("case", ADVISED)
def test_files_for_which_the_error_prints_the_command(case, written):
    ending, content, message, options = ADVISED[case]
    path = written(ending, content)
    with pytest.raises(InputError) as error:
        load([path])
    text, _, command = str(error.value).partition("; try: ")
    assert message in text
    assert command == f"python -m calibjax {shlex.quote(path)} {options}"
    assert len(load(shlex.split(command)[3:]).targets) >= 1


def test_no_command_where_none_works(written):
    """Rows that no option mends, names that would not be one line, and what nobody can know."""
    for content in (
        "prob_0,prob_1,answer\n0.25,7,1\n",
        'prob_0,prob_1,"a  b"\n0.25,0.75,1\n',
        "y_true,y_pred\n1,1\n0,1\n1,0\n",  # predicted labels
        "y_0,y_1,p_0,p_1\n1,0,0.8,0.2\n0,1,0.3,0.7\n",  # labels as rows of zeros and ones
        "q1,q2,q3,y\n1,2,3,2.5\n1,2,4,5.5\n",  # quartiles or percents
        "lower,upper,y\n1,2,1.5\n1,2,0.5\n",
        "prob_cat,prob_dog,label\n0.2,0.8,dog\n0.3,0.7,cow\n",
        "a,b,c,label\n20,70,10,b\n30,30,40,c\n90,5,5,a\n",  # percentages, and no logits
    ):
        with pytest.raises(InputError) as error:
            load([written(".csv", content)])
        assert "; try: " not in str(error.value)


def test_what_columns_lack(written):
    """Percentages are told by their sum, and a variance is made a scale by one line."""
    with pytest.raises(InputError, match=r"a, b, c sum to 100 in all rows: divided by that"):
        load([written(".csv", "a,b,c,label\n20,70,10,b\n30,30,40,c\n90,5,5,a\n")])
    with pytest.raises(InputError, match=r'table\["scale"\] = table\["Variance"\] \*\* 0.5'):
        load([written(".csv", "mean,Variance,y\n1,2,1.5\n1,3,0.5\n")])


def test_columns_that_count_rows_are_no_predictions(written):
    """The second of these guesses would have a number of rows as the scale."""
    with pytest.raises(InputError) as error:
        load([written(".csv", "number,a,b,y\n1,0.5,2,1.5\n2,0.25,2,2.5\n3,0.5,3,0.5\n")])
    assert "--predictions a b" in str(error.value)
