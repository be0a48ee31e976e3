"""Assessment of fitted models: paid scores, private selection, conformal intervals, certificates."""
