"""Private fit: post-processing of answers that the trusted core gives."""
