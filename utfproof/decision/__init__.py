"""What a certificate about a host's weights means in practice: the target it misses, its margin, and the report in words."""
