"""``python -m seqmodels``: the command line."""

from seqmodels.cli import app

if __name__ == "__main__":
    app(prog_name="seqmodels")
