"""A results folder as one HTML page: `collect` makes the numbers, `page` the page."""

from upriver.report.data import collect
from upriver.report.page import page

__all__ = ["collect", "page"]
