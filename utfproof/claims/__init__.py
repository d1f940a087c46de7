"""Every statement of the paper, decided: one module per section, each claim computed anew by `utfproof verify`."""
