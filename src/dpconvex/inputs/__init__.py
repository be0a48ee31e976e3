"""What a user hands over, checked: tables, labels, settings, files and their schema."""
