"""Assessment of fitted models: paid scores, private selection and conformal intervals."""
