"""Analysis documents turned into what people and programs read."""
