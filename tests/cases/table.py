"""T"""
CASES = ()
