"""Widmann, Lindsten, Zachariah (2021): calibration tests beyond classification.

`ols` runs App. A.1, `synthetic` App. A.2, `friedman` App. A.3:

| in the paper | file that is written | function |
| --- | --- | --- |
| App. A.1, the p-value | pvalues | `ols.rows` |
| Fig. 1, 4, 5 | figure_1, figure_4, figure_5 | `ols_figures.plot` |
| App. A.2, errors and variances | errors | `synthetic_tables.write_errors` |
| Fig. 6 to 9 | figure_6, … | `synthetic_figures.plot_errors` |
| App. A.2, test errors | tests | `synthetic_tables.write_tests` |
| Fig. 2, 10, 11 | figure_2, … | `synthetic_figures.plot_tests` |
| App. A.3, statistics, p-values | networks, ensemble, pvalues, agreement | `friedman_tables` |
| Fig. 3, 12 | figure_3, figure_12 | `friedman_figures` |

`draws` has the random numbers of all, `synthetic_simulation` the procedures of App. A.2, and
`friedman_networks` data and networks of App. A.3. The published numbers are in
`synthetic_errors.csv`, `synthetic_tests.csv` and `friedman_published.csv`.
"""
