"""Reading columns of tables: as times, as numbers, and as the names of several series in one table."""
