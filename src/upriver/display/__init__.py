"""How objects show themselves: a line, a card in a notebook, a data frame, a figure."""

from upriver.display.card import Card, displayed
from upriver.display.frames import to_frame

__all__ = ["Card", "displayed", "to_frame"]
