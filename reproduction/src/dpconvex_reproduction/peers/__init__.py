"""dpconvex against its peers on real data, at one budget and one neighbour relation."""
