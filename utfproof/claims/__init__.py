"""Every statement of the paper, decided: a TOML file a section and checks beside them, computed anew by `utfproof verify`."""
