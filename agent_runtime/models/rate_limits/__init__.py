"""Rate limits: requests wait for what a provider's headers say is left, fairly among runs."""
