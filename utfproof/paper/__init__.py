"""What the paper says, as data: its tables and its formulas."""
