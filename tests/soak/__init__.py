"""Long runs under fire: made-up lives of a company, and real processes in a storm."""
