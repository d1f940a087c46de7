"""Searches for hosts with fewer dimensions than the best known, in the shared-attention model.

A find counts only with an exact verification; a search that finds nothing proves nothing.
"""
