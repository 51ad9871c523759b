"""The Observer: a model, or rules, that turns an interval of the log into notes."""
