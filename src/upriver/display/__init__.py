"""How objects are displayed: a line, a card in a notebook, a data frame, a figure."""

from upriver.display.card import Card, add_repr, name_column, to_frame

__all__ = ["Card", "add_repr", "name_column", "to_frame"]
