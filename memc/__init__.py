"""memc: a memory-optimizing compiler for deep-learning models."""
