"""One command a file: a function of the file's name, whose parameters are options (utfproof/cli/entry.py wraps it)."""
