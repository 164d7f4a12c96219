"""The processes of one `sluice serve`: `relay` is the data path of one process; the application builds the rest."""
