"""The embedded database: one SQLite file through apsw. Only this package and `transfers.py` know SQL."""
