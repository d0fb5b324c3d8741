"""What is measured, and what it must reach. `python -m bench` runs it; see README.md beside this file.

A benchmark is not a test: tests never time. Each module here is one group of figures: it says what work it does, takes
its baseline in the same run, and states what the figure must reach.
"""
