"""How much is shown, and the words about how a run ended: its cost, and what can be done next."""
