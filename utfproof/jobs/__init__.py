"""What the commands share: what an option takes is declared once, for the command line, the sweeps and the documents."""
