"""The parts of `examples/flights.py`: source, Spark driver, its processes, the kills and the proof."""
