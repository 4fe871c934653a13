"""Widmann, Lindsten, Zachariah (2021): calibration tests beyond classification.

`ols` runs App. A.1, `synthetic` App. A.2:

| in the paper | file that is written | function |
| --- | --- | --- |
| App. A.1, the p-value | pvalues | `ols.rows` |
| Fig. 1, 4, 5 | figure_1, figure_4, figure_5 | `ols_figures.plot` |
| App. A.2, errors and variances | errors | `synthetic_tables.write_errors` |
| Fig. 6 to 9 | figure_6, … | `synthetic_figures.plot_errors` |
| App. A.2, test errors | tests | `synthetic_tables.write_tests` |
| Fig. 2, 10, 11 | figure_2, … | `synthetic_figures.plot_tests` |

`draws` has the random numbers of both, and `synthetic_simulation` the procedures. The published
numbers are in `synthetic_errors.csv` and `synthetic_tests.csv`.
"""
