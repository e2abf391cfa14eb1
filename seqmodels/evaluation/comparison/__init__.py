"""``compare``: models fitted and scored side by side, and the table, the checks and the files of the outcome."""
