"""What the paper says, as data: its tables, its formulas, and the places that claims quote."""
