"""People in the loop: what runs ask them, what they allow, and how a run waits for it."""
