"""Files: what may be attached, how it is stored, and the references that messages hold."""
