"""How small can a universal transformer be? For each notion of universality the largest lower bound that is proved and the
smallest m that is reached, with a certificate for each (docs/frontier.md)."""
