"""What commands do, one module each: a frozen dataclass whose fields are the command's options, the keys of a sweep and the
rows of docs/options.md, each declared once.

parameters   fields: what each is called, what it may be, what it says of itself
groups       those that several commands share
job          the base of every command, what it returns, and what a sweep needs of it
registry     which commands there are: the classes of this folder and of utfproof/cli that say their order
options      questions that several commands put to what they are given

`utfproof/cli` shows jobs to a person, `utfproof/sweeps` runs grids of them (docs/extend.md says how to add one).
"""

from __future__ import annotations
