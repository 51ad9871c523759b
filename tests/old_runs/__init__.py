"""A database that an earlier version wrote, with runs that stand still: they still resume."""
