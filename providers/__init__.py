"""Everything that speaks to the outside: clouds, clusters, devices."""
