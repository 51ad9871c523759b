"""What commands share: ids, and the options of runs."""
