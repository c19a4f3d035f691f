"""The program that ``python -m batchkron.cli`` runs."""

from batchkron.cli.main import main

if __name__ == "__main__":
    main(prog_name="batchkron")
