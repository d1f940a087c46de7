"""The checks, a module for each section of the paper or part of one."""
