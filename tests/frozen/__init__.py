"""The numbers of many public calls with fixed keys and data, which no change may move unnoticed.

`numbers.json` holds them in both precisions, and `test_frozen` compares. `python -m tests.frozen`
writes the file anew and prints what changed; what did is named in the commit, with the reason.
"""
