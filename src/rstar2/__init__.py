"""Agentic reinforcement learning with a Python tool: rStar2-Agent, reproduced.

The package is a house of floors; a room imports only from floors below it
(``tests/unit/test_house.py`` reads the imports and says so).
"""

__version__ = "0.1.0"
