"""Reading columns of tables: as times, as numbers, and as what tells several series apart."""
