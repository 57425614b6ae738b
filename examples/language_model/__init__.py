"""The parts of examples/char_lm.py: text, model and training, checkpoints, options, progress, report."""
