"""Training hosts on the paper's tasks: tasks, presets, engines, results."""
