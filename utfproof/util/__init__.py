"""Used by every room: arrays, files, processes, resources, the seeded generator, the lattice of notions."""
