"""Public facts become sensitivities: one file per kind of model, no data in here."""
