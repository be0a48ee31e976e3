"""Releases beside the sums of the core: perturbed minimisers, choices, and statistics of pairs.

None of them is called by a default fit. They stand under the same rule as the core: what they
release has the noise that the certificate states, and nothing else leaves them.
"""
