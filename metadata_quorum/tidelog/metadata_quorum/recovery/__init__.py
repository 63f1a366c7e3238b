"""Surveys the directory of a stopped voter, and goes on from what is left."""
