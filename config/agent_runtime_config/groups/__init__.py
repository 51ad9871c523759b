"""The settings by subject; `Settings` has them all."""
