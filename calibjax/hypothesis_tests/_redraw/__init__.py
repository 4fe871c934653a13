"""The one engine of every exact test: targets are redrawn, and the observed ones ranked among them.

`plan` chooses how the kernels of a `family` are evaluated, by pairs or by features, and gives the
values of the observed and of resampled targets, from one program; `components` ranks the first
among the others.
"""
