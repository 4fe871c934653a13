"""Luo et al. (2021): local calibration, metrics and recalibration.

Setting 1, Communities and Crime; `crime` runs it:

| in the paper | file that is written | function |
| --- | --- | --- |
| Table 1 | table_1 | `crime_tables.write_tables` |
| Table 2 | table_2, table_2_differences | `crime_correlations.write_tables` |
| Table 3 | table_3 | `crime_tables.write_tables` |
| §5.3 | claims, curves | `crime_tables.write_tables` |
| Fig. 5, 17 | figure_5, figure_17 | `crime_figures.plot` |
| App. A.2 | training | `crime_tables.write_training` |

The networks are in `crime_networks`, splits and features in `crime_models`, and the methods and
their errors, for all settings, in `methods` and `embeddings`.

Image classifiers; `networks` runs them:

| in the paper | file that is written | function |
| --- | --- | --- |
| Table 4 | table_4, local_errors | `networks_tables.write_tables` |
| Fig. 1 | figure_1 | `networks_figures.plot_features` |
| Fig. 2 | figure_2, figure_2_… | `networks_map.draw` |
| Fig. 4, 8, 9, 16 | figure_4, … | `networks_figures.plot` |
| Fig. 14, 15 | figures_14_15, figure_14, figure_15 | `networks_features.across` |
| §5.2, 5.4 | claims | `networks_claims.write_tables` |
"""
