"""What Python leaves to its users: modules that load on first use, files that are whole or absent."""
