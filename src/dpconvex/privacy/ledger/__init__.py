"""A data set's budget and everything that was charged to it, in a file that cannot be rewritten unseen."""
