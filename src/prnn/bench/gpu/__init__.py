"""Suites of a GPU: this library beside cuDNN called directly, torch.nn and products launched step by step, in one process."""
