"""What every kind of engine is judged with. Imports neither pytest nor any kind."""
