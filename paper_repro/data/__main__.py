"""Downloads the public data that the experiments read: `python -m paper_repro.data DIR`."""

from paper_repro.data.download import main

if __name__ == "__main__":
    raise SystemExit(main())
