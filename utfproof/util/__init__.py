"""What every room stands on: arrays, files, processes, resources, the seeded generator, the lattice of notions."""
