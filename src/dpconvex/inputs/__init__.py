"""Tables, labels, weights, settings and schemas that users hand over, read and checked."""


class InputError(ValueError):
    """Input that cannot be used, in words that hold no data value."""
