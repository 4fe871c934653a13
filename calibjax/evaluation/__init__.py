"""Everything about a model in one call, `calibjax.evaluate`, or about several, `calibjax.compare`.

It uses all other subpackages, and no other uses it.
"""
