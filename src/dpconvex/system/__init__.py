"""Services of the system: modules that load on first use, files that are whole or absent."""
