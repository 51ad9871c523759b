"""Tests of models that replace each other."""
