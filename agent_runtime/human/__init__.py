"""Human in the loop: questions, approvals and pauses that suspend a run."""
