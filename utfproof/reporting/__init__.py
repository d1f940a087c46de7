"""Reports of a verify document: JUnit XML, a table for terminals, block pictures and one self-contained page."""
